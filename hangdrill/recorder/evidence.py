"""All that a directory holds about one job: every rank's dumps, what could not be read, and the collector's reports."""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from hangdrill.model.diagnosis import UnreadableDump
from hangdrill.model.dump import Group, RankDump
from hangdrill.model.run import AgentFacts, RankPull
from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.files import DumpFiles, IgnoredFile, find_dumps
from hangdrill.recorder.reader import read_dump

__all__ = ["Evidence", "read_evidence"]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What `hangdrill.diagnosis.diagnose` wants to know. A cut dump is in both `dumps` and `unreadable`.

    launch_groups: the groups as the ranks' own agents recorded them (only in a run directory); gloo's dumps lack them.
    """

    dumps: tuple[RankDump, ...]
    unreadable: tuple[UnreadableDump, ...] = ()
    ignored: tuple[IgnoredFile, ...] = ()
    reports: tuple[RankPull, ...] = ()
    world_size: int | None = None
    launch_groups: tuple[Group, ...] = ()
    duplicates: tuple[int, ...] = ()


def read_evidence(
    directory: Path,
    *,
    prefix: str | None = None,
    read: Callable[[Path, int], RankDump] | None = None,
) -> Evidence:
    """Read every dump of a directory: dumps by name, an evidence directory, or a whole run directory (then its
    evidence and its agents' groups). read: reads one file (the seam for other processes). Raises DumpError."""
    place = directory / "evidence" if (directory / "evidence" / "manifest.json").is_file() else directory
    files = find_dumps(place, prefix=prefix)
    dumps, unreadable = _read_all(files, read or _read)
    manifest = files.manifest
    return Evidence(
        dumps=dumps,
        unreadable=unreadable,
        ignored=files.ignored,
        reports=_last_reports(manifest.ranks) if manifest else (),
        world_size=manifest.world_size if manifest else None,
        launch_groups=_launch_groups(place.parent / "control") if manifest else (),
        duplicates=files.duplicates,
    )


def _read(path: Path, rank: int) -> RankDump:
    return read_dump(path, rank=rank)


def _read_all(
    files: DumpFiles, read: Callable[[Path, int], RankDump]
) -> tuple[tuple[RankDump, ...], tuple[UnreadableDump, ...]]:
    dumps, unreadable = [], []
    for rank, paths in files.files.items():
        for path in paths:
            try:
                dump = read(path, rank)
            except DumpError as problem:
                text = f"{problem.where}: {problem.what}" if problem.where else problem.what
                unreadable.append(UnreadableDump(rank=rank, file=str(path), error=text))
                continue
            dumps.append(dump)
            if dump.salvaged:
                error = f"the file is cut or damaged at byte {dump.cut_at_byte}"
                saved = len(dump.operations)
                unreadable.append(UnreadableDump(rank=rank, file=str(path), error=error, salvaged_entries=saved))
    return tuple(dumps), tuple(unreadable)


def _last_reports(reports: Iterable[RankPull]) -> tuple[RankPull, ...]:
    """Each rank's report of its last attempt."""
    last: dict[int, RankPull] = {}
    for report in reports:
        if report.rank not in last or report.attempt >= last[report.rank].attempt:
            last[report.rank] = report
    return tuple(last[rank] for rank in sorted(last))


def _launch_groups(control: Path) -> tuple[Group, ...]:
    """The groups of every agent's facts file; a file that is not one is passed over, it is not the evidence itself."""
    groups: set[Group] = set()
    for file in sorted(control.glob("rank_*.facts.json")):
        try:
            facts = msgspec.json.decode(file.read_bytes(), type=AgentFacts)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            continue
        groups.update(Group(name=group.name, desc=group.desc, ranks=group.ranks) for group in facts.groups)
    return tuple(sorted(groups, key=lambda group: (group.name, group.desc, group.ranks)))
