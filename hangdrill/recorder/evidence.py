"""All that a place holds about one job: every rank's dumps, what could not be read, and the collector's reports."""

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from hangdrill.model.diagnosis import UnreadableDump
from hangdrill.model.dump import Group, RankDump
from hangdrill.model.run import AgentFacts, RankPull
from hangdrill.recorder.debug_page import split_page
from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.files import DumpFiles, ManifestAt, find_dumps
from hangdrill.recorder.local import LocalPlace
from hangdrill.recorder.opening import open_place
from hangdrill.recorder.places import DumpJob, IgnoredFile, Place
from hangdrill.recorder.reader import parse_dump, read_dump

__all__ = ["MAX_WORLD", "DuplicateRank", "Each", "Evidence", "Outcome", "merge_evidence", "read_evidence", "read_job"]

FACTS = ".facts.json"
MAX_WORLD = 1_000_000
"""Ranks of a job; a manifest that says more is not believed."""


class DuplicateRank(msgspec.Struct, frozen=True, kw_only=True):
    """Several files claim one rank, and nothing says why. All of them were read."""

    rank: int
    files: tuple[str, ...]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What `hangdrill.diagnosis.diagnose` wants to know. A cut dump is in both `dumps` and `unreadable`.

    launch_groups: the groups as the ranks' own agents recorded them (only in a run directory); gloo's dumps lack them.
    claimed: how many files claimed to be dumps, readable or not. found: there is a manifest, so this is a record of a
    job even where no dump arrived.
    """

    dumps: tuple[RankDump, ...]
    unreadable: tuple[UnreadableDump, ...] = ()
    ignored: tuple[IgnoredFile, ...] = ()
    reports: tuple[RankPull, ...] = ()
    world_size: int | None = None
    launch_groups: tuple[Group, ...] = ()
    duplicates: tuple[DuplicateRank, ...] = ()
    claimed: int = 0
    found: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one job: a dump, an entry for what could not be read, or (a cut dump) both."""

    dump: RankDump | None = None
    unreadable: UnreadableDump | None = None


Each = Callable[[Callable[[DumpJob], Outcome], Iterable[DumpJob]], Iterable[Outcome]]
"""How jobs are read: `map`, or what `hangdrill.readers` makes of an executor. Outcomes come in the order of the jobs.

The jobs must be taken as they are needed: of an archive, each carries its bytes. `operator.length_hint` counts them."""


def read_evidence(path: str | os.PathLike[str], *, prefix: str | None = None, each: Each = map) -> Evidence:
    """Read every dump of a place: a directory, a file, an archive or a URL; an evidence directory, or a whole run
    directory (then its evidence and its agents' groups). Raises DumpError, UsageError or MachineError."""
    with closing(open_place(path)) as place:
        files = find_dumps(place, prefix=prefix)
        outcomes = tuple(each(read_job, _Jobs(place, files)))
        groups = _launch_groups(place, files.manifests)
    unreadable = [one.unreadable for one in outcomes if one.unreadable is not None]
    lost = "the manifest lists it, and it is not there"
    unreadable += [UnreadableDump(rank=rank, file=place.shown(name), error=lost) for rank, name in files.lost]
    if files.problem:
        unreadable.append(UnreadableDump(rank=None, file=place.where, error=files.problem))
    sizes = [size for one in files.manifests if (size := one.manifest.world_size) is not None and size <= MAX_WORLD]
    return Evidence(
        dumps=tuple(one.dump for one in outcomes if one.dump is not None),
        unreadable=tuple(unreadable),
        ignored=files.ignored,
        reports=_last_reports(report for one in files.manifests for report in one.manifest.ranks),
        world_size=max(sizes, default=None),
        launch_groups=groups,
        duplicates=tuple(
            DuplicateRank(rank=rank, files=tuple(place.shown(name) for name in files.files[rank]))
            for rank in files.duplicates
        ),
        claimed=len(outcomes) + len(files.lost),
        found=bool(files.manifests),
    )


def read_job(job: DumpJob) -> Outcome:
    """Read one file. Never raises for what is in it, shares nothing, and can run in another process."""
    try:
        if job.error or job.rank is None:
            raise DumpError(job.error)
        if job.path:
            dump = read_dump(Path(job.path), rank=job.rank)
        else:
            dump = parse_dump(job.data, rank=job.rank, path=job.shown)
    except DumpError as problem:
        text = f"{problem.where}: {problem.what}" if problem.where else problem.what
        return Outcome(unreadable=UnreadableDump(rank=job.rank, file=job.shown, error=text))
    if not dump.salvaged:
        return Outcome(dump=dump)
    error = f"the file is cut or damaged at byte {dump.cut_at_byte}"
    saved = len(dump.operations)
    return Outcome(
        dump=dump, unreadable=UnreadableDump(rank=job.rank, file=job.shown, error=error, salvaged_entries=saved)
    )


def merge_evidence(parts: Iterable[Evidence]) -> Evidence:
    """What several places hold together; a rank that two of them have is a duplicate."""
    parts = tuple(parts)
    if len(parts) == 1:
        return parts[0]

    def all_of(name: str) -> tuple[Any, ...]:
        return tuple(one for part in parts for one in getattr(part, name))

    return Evidence(
        dumps=all_of("dumps"),
        unreadable=all_of("unreadable"),
        ignored=all_of("ignored"),
        reports=_last_reports(all_of("reports")),
        world_size=max((part.world_size for part in parts if part.world_size is not None), default=None),
        launch_groups=tuple(dict.fromkeys(all_of("launch_groups"))),
        duplicates=_duplicates(parts),
        claimed=sum(part.claimed for part in parts),
        found=any(part.found for part in parts),
    )


def _duplicates(parts: tuple[Evidence, ...]) -> tuple[DuplicateRank, ...]:
    files: dict[int, list[str]] = {one.rank: list(one.files) for part in parts for one in part.duplicates}
    owner: dict[int, int] = {}
    for number, part in enumerate(parts):
        for dump in part.dumps:
            if owner.setdefault(dump.rank, number) != number:
                files.setdefault(dump.rank, [])
    for part in parts:
        for dump in part.dumps:
            if dump.rank in files and dump.path not in files[dump.rank]:
                files[dump.rank].append(dump.path)
    return tuple(DuplicateRank(rank=rank, files=tuple(files[rank])) for rank in sorted(files))


class _Jobs:
    """The jobs of a place, made as they are asked for, and about how many there will be."""

    def __init__(self, place: Place, files: DumpFiles) -> None:
        self.place = place
        self.files = files

    def __iter__(self) -> Iterator[DumpJob]:
        return _jobs(self.place, self.files)

    def __length_hint__(self) -> int:
        return sum(len(names) for names in self.files.files.values()) + len(self.files.pages)


def _jobs(place: Place, files: DumpFiles) -> Iterator[DumpJob]:
    yield from place.jobs((name, rank) for rank, names in files.files.items() for name in names)
    for name in files.pages:
        shown = place.shown(name)
        try:
            dumps = split_page(place.small(name))
        except DumpError as problem:
            yield DumpJob(rank=None, shown=shown, error=problem.what)
            continue
        for rank, data in dumps.items():
            yield DumpJob(rank=rank, shown=shown, data=data)


def _last_reports(reports: Iterable[RankPull]) -> tuple[RankPull, ...]:
    """Each rank's report of its last attempt."""
    last: dict[int, RankPull] = {}
    for report in reports:
        if report.rank not in last or report.attempt >= last[report.rank].attempt:
            last[report.rank] = report
    return tuple(last[rank] for rank in sorted(last))


def _launch_groups(place: Place, manifests: tuple[ManifestAt, ...]) -> tuple[Group, ...]:
    """The groups of every agent's facts file; a file that is not one is passed over, it is not the evidence itself."""
    groups: set[Group] = set()
    for data in _facts_files(place, manifests):
        try:
            facts = msgspec.json.decode(data, type=AgentFacts)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        groups.update(Group(name=group.name, desc=group.desc, ranks=group.ranks) for group in facts.groups)
    return tuple(sorted(groups, key=lambda group: (group.name, group.desc, group.ranks)))


def _facts_files(place: Place, manifests: tuple[ManifestAt, ...]) -> Iterator[bytes]:
    folders = {posixpath.join(one.run_root, "control") for one in manifests if one.root}
    places: list[tuple[Place, set[str]]] = [(place, folders)] if folders else []
    if isinstance(place, LocalPlace) and any(not one.root for one in manifests):
        beside = place.path.absolute().parent / "control"  # the evidence directory itself was named
        if beside.is_dir():
            places.append((LocalPlace(beside), {""}))
    for where, wanted in places:
        for name in where.listing().names:
            if name.endswith(FACTS) and posixpath.dirname(name) in wanted:
                try:
                    yield where.small(name)
                except DumpError:
                    continue
