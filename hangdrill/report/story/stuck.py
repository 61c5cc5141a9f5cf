"""The table of stuck ranks: what each is inside of, the line it waits at, and since when."""

from collections.abc import Mapping

from hangdrill.diagnosis.words import name_operation
from hangdrill.model.diagnosis import Diagnosis, HangVerdict
from hangdrill.model.dump import Operation
from hangdrill.report.story.places import place_of
from hangdrill.report.story.ranks import Roles
from hangdrill.report.story.slices import RankSlice
from hangdrill.report.story.text import shown
from hangdrill.report.story.values import CulpritRow, Place, Role, StuckRow

__all__ = ["culprit_rows", "operation_name", "stall_ns", "stuck_rows"]

MOST_ROWS = 100


def operation_name(operation: Operation) -> str:
    """ "all_reduce #4 of default_pg"."""
    group = operation.group_desc or operation.group_name or "its group"
    return name_operation(shown(operation.name, 80), operation.sequence, shown(group, 120))


def stall_ns(roles: Roles, slices: Mapping[int, RankSlice]) -> int | None:
    """When the first waiting rank entered the stuck operation; None when no dump says it."""
    inside = [one.pending for rank, one in slices.items() if rank in roles.waiting]
    return min((pending.created_ns for pending in inside if pending is not None and pending.created_ns), default=None)


def stuck_rows(diagnosis: Diagnosis, roles: Roles, slices: Mapping[int, RankSlice]) -> tuple[tuple[StuckRow, ...], int]:
    """Ranks that are absent, wait, or are inside of something else, folded where they stand alike; and how many rows
    there are beyond those given. Without a hang there are none."""
    if diagnosis.verdict is HangVerdict.NO_HANG:
        return (), 0
    start_ns = stall_ns(roles, slices)
    folded: dict[tuple[Role, str, Place, bool, bool], list[tuple[int, int]]] = {}
    for rank in sorted({*slices, *roles.absent, *roles.waiting, *roles.culprits}):
        row = _standing(rank, roles, slices.get(rank))
        if row is not None:
            key, at_ns = row
            folded.setdefault(key, []).append((rank, at_ns))
    rows = [
        StuckRow(
            ranks=tuple(rank for rank, _ in found),
            role=role,
            operation=operation,
            place=place,
            after_s=_after_s([at_ns for _, at_ns in found if at_ns], start_ns),
            is_culprit=is_culprit,
            has_dump=has_dump,
            inferred=role is Role.ABSENT and roles.inferred.issuperset(rank for rank, _ in found),
        )
        for (role, operation, place, is_culprit, has_dump), found in folded.items()
    ]
    order = [Role.ABSENT, Role.IDLE, Role.UNKNOWN, Role.WAITING, Role.ELSEWHERE]
    rows.sort(key=lambda row: (not row.is_culprit, order.index(row.role), row.ranks))
    return tuple(rows[:MOST_ROWS]), max(0, len(rows) - MOST_ROWS)


def culprit_rows(diagnosis: Diagnosis) -> tuple[CulpritRow, ...]:
    """The culprits, those named for the same reason together."""
    folded: dict[tuple[str, str], list[int]] = {}
    for culprit in diagnosis.culprits:
        folded.setdefault((culprit.basis.value, shown(culprit.why)), []).append(culprit.rank)
    rows = [CulpritRow(ranks=tuple(ranks), basis=basis, why=why) for (basis, why), ranks in folded.items()]
    return tuple(rows[:MOST_ROWS])


def _standing(rank: int, roles: Roles, one: RankSlice | None) -> tuple[tuple[Role, str, Place, bool, bool], int] | None:
    """How a rank stands and since when; None for one that is neither stuck nor named."""
    role, is_culprit = roles.of(rank), rank in roles.culprits
    if one is None:
        return ((role, "", Place(), is_culprit, False), 0) if is_culprit or role in STUCK_ROLES else None
    operation = one.last_there if role is Role.ABSENT and one.last_there is not None else one.pending
    if role not in STUCK_ROLES:
        if operation is None and not is_culprit:
            return None
        role = role if operation is None else Role.ELSEWHERE
    if operation is None:
        return (role, "", Place(), is_culprit, True), 0
    return (role, _told(operation, roles), place_of(operation.frames), is_culprit, True), operation.created_ns


def _told(operation: Operation, roles: Roles) -> str:
    """ "all_reduce #55 of default_pg, 77 elements (Float)" where ranks differ in it."""
    differs = shown(roles.differs(operation), 120)
    return operation_name(operation) + (f", {differs}" if differs else "")


STUCK_ROLES = {Role.ABSENT, Role.WAITING}


def _after_s(at_ns: list[int], start_ns: int | None) -> tuple[float, float] | None:
    if start_ns is None or not at_ns:
        return None
    return (min(at_ns) - start_ns) / 1e9, (max(at_ns) - start_ns) / 1e9
