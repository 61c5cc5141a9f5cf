"""Dumps of an earlier job among those of this one, found by the times inside them (a file's own time is no evidence).

The same operation of the same group is entered by all ranks within a timeout or so. A rank whose record of it is older
than that on every operation it shares with the rank that was heard of last has left a file of an earlier job.
"""

from hangdrill.diagnosis.views import RankView
from hangdrill.model.dump import Operation

__all__ = ["stale_ranks"]

MIN_SHARED = 2
"""One shared operation may be the one that a rank entered late; two cannot both be."""
SLACK_NS = 600 * 10**9
"""Clocks of hosts differ, but hardly by minutes."""

Key = tuple[str, str, int]


def stale_ranks(views: dict[int, RankView]) -> frozenset[int]:
    """Ranks whose dumps are of an earlier job than the newest dump."""
    spoken = [view for view in views.values() if view.operations and not view.contradictory]
    if len(spoken) < 2:
        return frozenset()
    newest = max(spoken, key=lambda view: (max(operation.created_ns for operation in view.operations), -view.rank))
    reference = _times(newest)
    limit_ns = SLACK_NS + 2_000_000 * max(operation.timeout_ms for operation in newest.operations)
    return frozenset(view.rank for view in spoken if _is_older(view, reference, limit_ns))


def _is_older(view: RankView, reference: dict[Key, int], limit_ns: int) -> bool:
    shared = [reference[key] - created for key, created in _times(view).items() if key in reference]
    return len(shared) >= MIN_SHARED and min(shared) > limit_ns


def _times(view: RankView) -> dict[Key, int]:
    """When each collective was entered; sends and receives count by pair and cannot be compared so."""
    return {_key(operation): operation.created_ns for operation in view.operations if not operation.p2p}


def _key(operation: Operation) -> Key:
    return operation.group_name, operation.group_desc, operation.sequence
