"""The last operations of every rank, in seconds from the stall; ranks that did the same share a row."""

from collections.abc import Mapping
from statistics import median_low

from hangdrill.diagnosis.history import finished
from hangdrill.model.diagnosis import StuckOperation
from hangdrill.model.dump import Operation
from hangdrill.report.story.ranks import Roles
from hangdrill.report.story.slices import RankSlice
from hangdrill.report.story.stuck import operation_name, stall_ns
from hangdrill.report.story.text import shown
from hangdrill.report.story.values import Mark, Role, Timeline, TimelineRow

__all__ = ["MOST_ROWS", "timeline_of"]

MOST_ROWS = 32

Did = tuple[tuple[str, bool], ...]


def timeline_of(roles: Roles, slices: Mapping[int, RankSlice]) -> Timeline:
    """Second 0 is when the first waiting rank entered the stuck operation, else the last operation that was recorded.

    Every host has its own clock; nothing is corrected.
    """
    tails = {rank: [one for one in found.tail if one.created_ns] for rank, found in slices.items()}
    zero_ns = stall_ns(roles, slices)
    zero = _zero_text(roles.stuck if zero_ns is not None else None)
    if zero_ns is None:
        zero_ns = max((tail[-1].created_ns for tail in tails.values() if tail), default=0)
    folded: dict[tuple[Did, Role, bool, str], list[int]] = {}
    for rank, tail in tails.items():
        if tail:
            differs = roles.differs(slices[rank].pending)
            folded.setdefault((_did(tail), roles.of(rank), rank in roles.culprits, differs), []).append(rank)
    order = sorted(folded.items(), key=lambda item: (not item[0][2], item[0][1] is not Role.ABSENT, -len(item[1])))
    rows = [
        TimelineRow(
            ranks=tuple(ranks),
            role=role,
            is_culprit=is_culprit,
            marks=tuple(
                _mark(word, [tails[rank][index].created_ns for rank in ranks], zero_ns, pending=pending)
                for index, (word, pending) in enumerate(did)
            ),
        )
        for (did, role, is_culprit, _), ranks in order[:MOST_ROWS]
    ]
    return Timeline(zero=zero, rows=tuple(rows), hidden=sum(len(ranks) for _, ranks in order[MOST_ROWS:]))


def _did(tail: list[Operation]) -> Did:
    return tuple((operation_name(operation), not finished(operation)) for operation in tail)


def _mark(label: str, created_ns: list[int], zero_ns: int, *, pending: bool) -> Mark:
    seconds = [(created - zero_ns) / 1e9 for created in created_ns]
    return Mark(label=label, pending=pending, at_s=median_low(seconds), from_s=min(seconds), to_s=max(seconds))


def _zero_text(stuck: StuckOperation | None) -> str:
    if stuck is None:
        return "the last operation that any rank recorded"
    return f"the first rank enters {shown(stuck.op, 80)} #{stuck.sequence}"
