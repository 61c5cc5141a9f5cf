"""Looking at what is on the disk and what is left of the drill: facts for the checks, no judgement."""

import contextlib
import hashlib
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from hangdrill.drill.layout import RunLayout, write_json
from hangdrill.drill.plan import Plan
from hangdrill.drill.supervise import Supervisor
from hangdrill.model.run import ArtifactKind, FileFacts, Leftover, Manifest

__all__ = ["COLLECTED", "Inspection", "Inspector", "leftover_files", "sweep_sockets"]

COLLECTED = "collected"


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """`inspection.json`. leftovers None: nobody looked yet."""

    files: tuple[FileFacts, ...] = ()
    leftovers: tuple[Leftover, ...] | None = None


class Inspector:
    """Keeps inspection.json: one more set of facts at each call, in order."""

    def __init__(self, plan: Plan, layout: RunLayout) -> None:
        self._plan = plan
        self._layout = layout
        self._inspection = Inspection()

    def look_at_files(self, when: str, manifest: Manifest | None) -> int:
        """Record every artifact and every native path of an expected rank; how many exist."""
        found = tuple(_facts(when, *subject) for subject in self._subjects(manifest))
        self._inspection = msgspec.structs.replace(self._inspection, files=self._inspection.files + found)
        write_json(self._layout.inspection, self._inspection)
        return sum(facts.exists for facts in found)

    def look_for_leftovers(self, supervisor: Supervisor) -> tuple[Leftover, ...]:
        """Record what is still there of the drill: processes, sockets, FIFOs and hold files."""
        living = supervisor.processes()
        leftovers = (
            *(Leftover(what="process", name=f"{process.name} ({process.id.pid})") for process in living),
            *leftover_files(self._layout),
        )
        self._inspection = msgspec.structs.replace(self._inspection, leftovers=leftovers)
        write_json(self._layout.inspection, self._inspection)
        return leftovers

    def _subjects(self, manifest: Manifest | None) -> Iterable[tuple[int, int, ArtifactKind, Path]]:
        for rank in self._plan.expected_ranks:
            yield rank, 0, ArtifactKind.DUMP, Path(f"{self._plan.dump_prefix}{rank}")
        for artifact in () if manifest is None else manifest.artifacts:
            yield artifact.rank, artifact.attempt, artifact.kind, self._layout.evidence / artifact.path


def leftover_files(layout: RunLayout) -> tuple[Leftover, ...]:
    """Sockets, FIFOs and hold files that are still there."""
    blocking = (*_entries(layout.control, stat.S_ISFIFO), *sorted(layout.control.glob("hold_*")))
    return (
        *(Leftover(what="socket", name=str(path)) for path in _entries(layout.sockets, stat.S_ISSOCK)),
        *(Leftover(what="file", name=str(path)) for path in blocking),
    )


def sweep_sockets(layout: RunLayout) -> None:
    """Remove the sockets of ranks that are gone."""
    for path in _entries(layout.sockets, stat.S_ISSOCK):
        with contextlib.suppress(OSError):
            path.unlink()


def _facts(when: str, rank: int, attempt: int, kind: ArtifactKind, path: Path) -> FileFacts:
    try:
        found = path.stat()
        with path.open("rb") as file:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return FileFacts(when=when, rank=rank, attempt=attempt, kind=kind, path=str(path), exists=False)
    return FileFacts(
        when=when,
        rank=rank,
        attempt=attempt,
        kind=kind,
        path=str(path),
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
