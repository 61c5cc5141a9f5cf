"""dumps + reports -> Diagnosis. Pure: the same evidence in any order gives the same answer."""

from collections.abc import Iterable, Mapping

from hangdrill.diagnosis.case import Judgement
from hangdrill.diagnosis.groups import DEFAULT_DESC, distinct, resolve_groups
from hangdrill.diagnosis.judge import judge
from hangdrill.diagnosis.reports import collectives_counted, failed_operations
from hangdrill.diagnosis.scene import look
from hangdrill.diagnosis.staleness import stale_ranks
from hangdrill.diagnosis.views import RankView, merge_dumps, rewind
from hangdrill.diagnosis.words import name_ranks
from hangdrill.model.diagnosis import Diagnosis, RankRoll, UnreadableDump
from hangdrill.model.dump import Group, RankDump
from hangdrill.model.run import RankPull

__all__ = ["diagnose"]


def diagnose(
    dumps: Iterable[RankDump],
    *,
    world_size: int | None = None,
    reports: Iterable[RankPull] = (),
    launch_groups: Iterable[Group] = (),
    unreadable: Iterable[UnreadableDump] = (),
    stale: Iterable[int] = (),
) -> Diagnosis:
    """What the dumps say happened.

    dumps: of any ranks, several of one rank too. world_size: how many ranks there were, when known. reports: what the
    collector saw of the processes. launch_groups: members of groups as the launch recorded them (gloo's dumps lack
    them). stale: ranks whose dumps are known to be of an earlier job; they are not looked at, nor are those whose own
    times say so.
    """
    old = frozenset(stale)
    unreadable = tuple(unreadable)
    groups_told = tuple(launch_groups)
    by_rank = {report.rank: report for report in sorted(reports, key=lambda report: (report.rank, report.attempt))}
    views = merge_dumps(dump for dump in dumps if dump.rank not in old)
    older = stale_ranks(views)
    old |= older
    views = {rank: view for rank, view in views.items() if rank not in older}
    for report in by_rank.values():
        if report.rank in views:
            rewind(views[report.rank], {(count.name, count.desc): count.collectives for count in report.counts})
    written = frozenset(one.rank for one in unreadable if one.rank is not None)
    for rank in written & views.keys():
        views[rank].listed = False  # what is not on the list may be what the lost file told otherwise
    expected = _expected(views, world_size, groups_told)
    roll = _roll(views, expected, unreadable, old)
    size = None if expected is None else len(expected)
    groups = resolve_groups(views, groups_told, size)
    scene = look(views, groups, failed_operations(groups, by_rank), collectives_counted(by_rank.values()))
    judgement = judge(scene, by_rank, expected, written)
    return _diagnosis(judgement, roll)


def _diagnosis(judgement: Judgement, roll: RankRoll) -> Diagnosis:
    return Diagnosis(
        verdict=judgement.verdict,
        kind=judgement.kind,
        culprits=judgement.culprits,
        stuck=judgement.stuck,
        ranks=roll,
        notes=tuple(dict.fromkeys([*judgement.notes, *_roll_notes(roll)])),
    )


def _expected(
    views: Mapping[int, RankView], world_size: int | None, launch_groups: Iterable[Group]
) -> frozenset[int] | None:
    """All ranks of the job: as told, else the members of the default group, else unknown."""
    if world_size is not None:
        return frozenset(range(world_size))
    default = [group.ranks for group in launch_groups if group.desc == DEFAULT_DESC]
    default += [ranks for view in views.values() for (_, desc), ranks in view.groups.items() if desc == DEFAULT_DESC]
    members = frozenset(rank for ranks in distinct(default) for rank in ranks)
    return members or None


def _roll(
    views: Mapping[int, RankView],
    expected: frozenset[int] | None,
    unreadable: Iterable[UnreadableDump],
    stale: frozenset[int],
) -> RankRoll:
    return RankRoll(
        expected=None if expected is None else len(expected),
        present=tuple(sorted(views)),
        missing=() if expected is None else tuple(sorted(expected - views.keys())),
        unreadable=tuple(sorted(unreadable, key=lambda one: (-1 if one.rank is None else one.rank, one.file))),
        stale=tuple(sorted(stale)),
        duplicate=tuple(rank for rank, view in sorted(views.items()) if view.contradictory),
        empty=tuple(rank for rank, view in sorted(views.items()) if view.empty),
    )


def _roll_notes(roll: RankRoll) -> list[str]:
    notes = []
    if roll.empty and len(roll.empty) < len(roll.present):
        notes.append(
            f"the dump of {name_ranks(roll.empty)} is empty while others are not: the process lived and had entered no"
            " operation, or another backend was asked for"
        )
    elif roll.empty:
        notes.append("all dumps are empty: the recorder had nothing, or another backend was asked for")
    if roll.duplicate:
        notes.append(f"two dumps that cannot be of one process claim {name_ranks(roll.duplicate)}: neither is believed")
    if roll.stale:
        notes.append(f"the dump of {name_ranks(roll.stale)} is of an earlier job and was not looked at")
    return notes
