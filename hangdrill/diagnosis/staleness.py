"""Dumps of an earlier job among those of this one, found by the times inside them (a file's own time is no evidence).

A collective that one rank entered longer than a timeout before another did is finished by nobody. A rank whose record
says otherwise has left a file of an earlier job (or its clock is wrong by more than `SLACK_NS`: then its times are
worth no more). If most ranks say so, it is the other one that came late.
"""

from hangdrill.diagnosis.views import RankView, finished
from hangdrill.model.dump import Operation

__all__ = ["stale_ranks"]

SLACK_NS = 30 * 10**9
"""Clocks of hosts differ, but hardly by half a minute."""

Key = tuple[str, str, int]


def stale_ranks(views: dict[int, RankView]) -> frozenset[int]:
    """Ranks whose dumps are of an earlier job than those of their peers."""
    entries: dict[Key, dict[int, Operation]] = {}
    for rank, view in views.items():
        if not view.contradictory:
            for operation in view.operations:
                if not operation.p2p:
                    key = (operation.group_name, operation.group_desc, operation.sequence)
                    entries.setdefault(key, {})[rank] = operation
    stale: set[int] = set()
    for by_rank in entries.values():
        older = _older(by_rank)
        if len(older) * 2 <= len(by_rank):
            stale |= older
    return frozenset(stale)


def _older(by_rank: dict[int, Operation]) -> set[int]:
    newest = max(operation.created_ns for operation in by_rank.values())
    oldest = min(operation.created_ns for operation in by_rank.values())
    if newest - oldest <= SLACK_NS:
        return set()
    timeout_ns = max(operation.timeout_ms for operation in by_rank.values()) * 1_000_000
    limit = newest - timeout_ns - SLACK_NS
    if not timeout_ns or not any(finished(operation) for operation in by_rank.values()):
        return set()
    return {rank for rank, operation in by_rank.items() if operation.created_ns < limit}
