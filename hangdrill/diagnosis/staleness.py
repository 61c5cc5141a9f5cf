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

MAX_COMPARED = 32
"""Operations of a group that are compared. The dump of an earlier job shows in any operation that both have."""


def stale_ranks(views: dict[int, RankView]) -> frozenset[int]:
    """Ranks whose dumps are of an earlier job than those of their peers."""
    users: dict[Key, list[RankView]] = {}
    sequences: dict[Key, set[int]] = {}
    for view in views.values():
        if not view.contradictory:
            for key, last in _last_sequences(view).items():
                users.setdefault(key, []).append(view)
                sequences.setdefault(key, set()).update(last)
    stale: set[int] = set()
    for key, among in users.items():
        for sequence in _some(sorted(sequences[key])):
            by_rank = {view.rank: found[0] for view in among if (found := view.find(key, sequence))}
            older = _older(by_rank)
            if len(older) * 2 <= len(by_rank):
                stale |= older
    return frozenset(stale)


def _last_sequences(view: RankView) -> dict[Key, set[int]]:
    """Of each group, the last collective and the last finished one."""
    last: dict[tuple[Key, bool], int] = {}
    for operation in view.operations:
        if not operation.p2p:
            one = (operation.group_name, operation.group_desc), finished(operation)
            last[one] = max(operation.sequence, last.get(one, 0))
    found: dict[Key, set[int]] = {}
    for (key, _), sequence in last.items():
        found.setdefault(key, set()).add(sequence)
    return found


def _some(sequences: list[int]) -> list[int]:
    """At most MAX_COMPARED of them, evenly spread."""
    step = -(-len(sequences) // MAX_COMPARED)
    return sequences[:: max(step, 1)]


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
