"""Dumps of an earlier job among those of this one, found by the times inside them (a file's own time is no evidence).

A collective that one rank entered longer than a timeout before another did is finished by nobody. A rank whose record
says otherwise has left a file of an earlier job (or its clock is wrong by more than `SLACK_NS`: then its times are
worth no more). If most ranks say so, it is the other one that came late.
"""

from hangdrill.diagnosis.history import Key, finished
from hangdrill.diagnosis.views import RankView
from hangdrill.model.dump import Operation

__all__ = ["stale_ranks"]

SLACK_NS = 30 * 10**9
"""Clocks of hosts differ, but hardly by half a minute."""

MAX_COMPARED = 256
"""Operations of a group that are compared. The dump of an earlier job shows in any operation that both have."""


def stale_ranks(views: dict[int, RankView]) -> frozenset[int]:
    """Ranks whose dumps are of an earlier job than those of their peers."""
    users: dict[Key, list[RankView]] = {}
    windows: dict[Key, list[tuple[int, int]]] = {}
    for view in views.values():
        if not view.contradictory:
            for key, window in _windows(view).items():
                users.setdefault(key, []).append(view)
                windows.setdefault(key, []).append(window)
    stale: set[int] = set()
    for key, among in users.items():
        for sequence in _compared(windows[key]):
            by_rank = {view.rank: found[0] for view in among if (found := view.find(key, sequence))}
            older = _older(by_rank)
            if len(older) * 2 <= len(by_rank):
                stale |= older
    return frozenset(stale)


def _windows(view: RankView) -> dict[Key, tuple[int, int]]:
    """Of each group, the sequences of the first and the last notable collective."""
    found: dict[Key, tuple[int, int]] = {}
    for operation in view.operations:
        if not operation.p2p:
            key = operation.group_name, operation.group_desc
            first, last = found.get(key, (operation.sequence, operation.sequence))
            found[key] = min(first, operation.sequence), max(last, operation.sequence)
    return found


def _compared(windows: list[tuple[int, int]]) -> list[int]:
    """So few sequences that each window holds one of them (the least number of points that meet all intervals)."""
    chosen: list[int] = []
    for first, last in sorted(set(windows), key=lambda window: (window[1], window[0])):
        if not chosen or chosen[-1] < first:
            chosen.append(last)
    return chosen[-MAX_COMPARED:]


def _older(by_rank: dict[int, Operation]) -> set[int]:
    if not by_rank:
        return set()
    newest = max(operation.created_ns for operation in by_rank.values())
    oldest = min(operation.created_ns for operation in by_rank.values())
    if newest - oldest <= SLACK_NS:
        return set()
    timeout_ns = max(operation.timeout_ms for operation in by_rank.values()) * 1_000_000
    limit = newest - timeout_ns - SLACK_NS
    if not timeout_ns or not any(finished(operation) for operation in by_rank.values()):
        return set()
    return {rank for rank, operation in by_rank.items() if operation.created_ns < limit}
