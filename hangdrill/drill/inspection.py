"""Looking at what is on the disk and what is left of the drill: facts for the checks, no judgement."""

import contextlib
import hashlib
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from hangdrill.drill.layout import RunLayout, write_json
from hangdrill.drill.places import look_at_place
from hangdrill.drill.plan_values import Plan
from hangdrill.drill.supervise import Supervisor
from hangdrill.launchers.protocol import OutOfReach
from hangdrill.model.run import ArtifactKind, FileFacts, Leftover, Manifest, MemoryFacts, PlaceFacts, RankClock

__all__ = ["BEFORE", "COLLECTED", "RUNNING", "Inspection", "Inspector", "leftover_files", "sweep_sockets"]

BEFORE, COLLECTED, RUNNING = "before", "collected", "running"
"""Inspections: before the job is started, while its fault is in place, and when the evidence is in."""


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """`inspection.json`. leftovers None: nobody looked yet."""

    files: tuple[FileFacts, ...] = ()
    leftovers: tuple[Leftover, ...] | None = None
    places: tuple[PlaceFacts, ...] = ()
    clocks: tuple[RankClock, ...] = ()
    memory: MemoryFacts | None = None


class Inspector:
    """Keeps inspection.json: one more set of facts at each call, in order."""

    def __init__(
        self,
        plan: Plan,
        layout: RunLayout,
        locate: Callable[[str], Path | None] = Path,
        place_of: Callable[[str], str] = lambda path: "",
    ) -> None:
        """locate: where this host finds a file of the job. place_of: what holds it, if that goes with the job."""
        self._plan = plan
        self._layout = layout
        self._locate = locate
        self._place_of = place_of
        self._inspection = Inspection()

    def look_at_files(self, when: str, manifest: Manifest | None) -> int:
        """Record every artifact and every native path of an expected rank; how many exist."""
        found = tuple(_facts(facts, place) for facts, place in self._subjects(when, manifest))
        if when == BEFORE:  # the job's own files cannot be there yet; those of an earlier one can
            found = tuple(facts for facts in found if facts.exists)
        self._add(files=self._inspection.files + found)
        return sum(facts.exists for facts in found)

    def look_at_place(self, when: str, process: int | None) -> PlaceFacts:
        """Record what the directory of native dumps is. process: one of the job's, if one lives."""
        found = look_at_place(self._plan.dump_prefix, when=when, process=process, locate=self._locate)
        self._add(places=(*self._inspection.places, found))
        return found

    def note_clocks(self, clocks: tuple[RankClock, ...]) -> None:
        """Record the ranks' clocks; the first look at each counts."""
        known = {(clock.rank, clock.attempt) for clock in self._inspection.clocks}
        new = tuple(clock for clock in clocks if (clock.rank, clock.attempt) not in known)
        if new:
            self._add(clocks=self._inspection.clocks + new)

    def note_memory(self, memory: MemoryFacts) -> None:
        """Record what became of a container at its memory limit."""
        self._add(memory=memory)

    def look_for_leftovers(self, supervisor: Supervisor, of_job: tuple[Leftover, ...] = ()) -> tuple[Leftover, ...]:
        """Record what is still there of the drill: processes, sockets, FIFOs, hold files, and what the job names."""
        living = supervisor.processes()
        leftovers = (
            *(Leftover(what="process", name=f"{process.name} ({process.id.pid})") for process in living),
            *leftover_files(self._layout),
            *_torchrun_directories(self._plan),
            *of_job,
        )
        self._add(leftovers=leftovers)
        return leftovers

    def _add(self, **changes: object) -> None:
        self._inspection = msgspec.structs.replace(self._inspection, **changes)
        write_json(self._layout.inspection, self._inspection)

    def _subjects(self, when: str, manifest: Manifest | None) -> Iterable[tuple[FileFacts, Path | None]]:
        """What is looked for, under the name that the job gave it, and where this host may have it."""
        for rank in self._plan.expected_ranks:
            path = f"{self._plan.dump_prefix}{rank}"
            gone = FileFacts(
                when=when, rank=rank, kind=ArtifactKind.DUMP, path=path, exists=False, place=self._place_of(path)
            )
            try:
                yield gone, self._locate(path)
            except OutOfReach as error:
                yield msgspec.structs.replace(gone, unseen=error.what), None
        for artifact in () if manifest is None else manifest.artifacts:
            own = self._layout.evidence / artifact.path
            yield (
                FileFacts(
                    when=when,
                    rank=artifact.rank,
                    attempt=artifact.attempt,
                    kind=artifact.kind,
                    path=str(own),
                    exists=False,
                ),
                own,
            )


def leftover_files(layout: RunLayout) -> tuple[Leftover, ...]:
    """Sockets, FIFOs and hold files that are still there."""
    blocking = (*_entries(layout.control, stat.S_ISFIFO), *sorted(layout.control.glob("hold_*")))
    return (
        *(Leftover(what="socket", name=str(path)) for path in _entries(layout.sockets, stat.S_ISSOCK)),
        *(Leftover(what="file", name=str(path)) for path in blocking),
    )


def _torchrun_directories(plan: Plan) -> tuple[Leftover, ...]:
    """What torchrun makes in the temporary directory when it is not told where: it never removes it."""
    temporary = Path(plan.environment.get("TMPDIR") or tempfile.gettempdir())
    found = sorted(temporary.glob(f"torchelastic_*/{plan.run_id}_*"))
    return tuple(Leftover(what="file", name=str(path.parent)) for path in found)


def sweep_sockets(layout: RunLayout) -> None:
    """Remove the sockets of ranks that are gone."""
    for path in _entries(layout.sockets, stat.S_ISSOCK):
        with contextlib.suppress(OSError):
            path.unlink()


def _facts(gone: FileFacts, place: Path | None) -> FileFacts:
    """What is at a place; `gone` says what is looked for, and is the answer when there is nothing."""
    if place is None:
        return gone
    try:
        found = place.stat()
        with place.open("rb") as file:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return gone
    return msgspec.structs.replace(
        gone,
        exists=True,
        bytes=found.st_size,
        uid=found.st_uid,
        mode=stat.S_IMODE(found.st_mode),
        mtime_ns=found.st_mtime_ns,
        sha256=digest.hexdigest(),
    )


def _entries(directory: Path, is_kind: Callable[[int], bool]) -> list[Path]:
    """The entries of one kind, sorted; none when the directory is gone."""
    try:
        return sorted(path for path in directory.iterdir() if is_kind(path.lstat().st_mode))
    except OSError:
        return []
