"""Dumps of an earlier job among those of this one, found by the times inside them (a file's own time is no evidence).

A collective is not finished by a rank that entered it longer than a timeout before another did. A rank whose record
says so, measured by the rank that was heard of last, has left a file of an earlier job (or its clock is wrong by more
than `SLACK_NS`: then its times are worth no more).
"""

from hangdrill.diagnosis.views import RankView, finished
from hangdrill.model.dump import Operation

__all__ = ["stale_ranks"]

SLACK_NS = 30 * 10**9
"""Clocks of hosts differ, but hardly by half a minute."""

Key = tuple[str, str, int]


def stale_ranks(views: dict[int, RankView]) -> frozenset[int]:
    """Ranks whose dumps are of an earlier job than the newest dump."""
    spoken = [view for view in views.values() if view.operations and not view.contradictory]
    if len(spoken) < 2:
        return frozenset()
    newest = max(spoken, key=lambda view: (max(operation.created_ns for operation in view.operations), -view.rank))
    reference = {_key(operation): operation for operation in newest.operations if not operation.p2p}
    return frozenset(view.rank for view in spoken if any(_is_older(one, reference) for one in view.operations))


def _is_older(operation: Operation, reference: dict[Key, Operation]) -> bool:
    other = reference.get(_key(operation))
    if other is None or not finished(operation):
        return False
    timeout_ns = max(operation.timeout_ms, other.timeout_ms) * 1_000_000
    return timeout_ns > 0 and other.created_ns - operation.created_ns > timeout_ns + SLACK_NS


def _key(operation: Operation) -> Key:
    return operation.group_name, operation.group_desc, operation.sequence
