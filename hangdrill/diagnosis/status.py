"""What `pg_status` says of a group's collectives, where it can be understood.

`pg_status` is keyed by the recorder's pg_id, which numbers the groups of one process: in another process the same
group may have another. It stores op ids (nccl2 from 0, others from 1), which count sends and receives too; so it tells
the sequence only of groups in which there were none.
"""

from hangdrill.diagnosis.groups import DEFAULT_DESC, GroupView
from hangdrill.diagnosis.history import NEW_BACKENDS
from hangdrill.diagnosis.views import RankView
from hangdrill.model.dump import Operation

__all__ = ["StatusBook"]


class StatusBook:
    """The statuses of all ranks, matched with the groups."""

    def __init__(self, views: dict[int, RankView], groups: list[GroupView]) -> None:
        self.views = views
        self._ids = {id(group): _ids_seen(group) for group in groups}
        self._bases = {id(group): _base(group) for group in groups}

    def entered(self, group: GroupView, rank: int) -> int | None:
        """How many collectives of the group the rank has entered by its pg_status; None when that cannot be told."""
        view, base = self.views.get(rank), self._bases[id(group)]
        if view is None or base is None:
            return None
        status = view.statuses.get(self._pg_id(group, view) or "")
        if status is None:
            return None
        return max(0, status.last_enqueued - base) if status.last_enqueued >= 0 else 0

    def _pg_id(self, group: GroupView, view: RankView) -> str | None:
        """The rank's own pg_id of the group: from its entries, or from the order in which groups are made."""
        seen = self._ids[id(group)]
        if view.rank in seen:
            return seen[view.rank]
        if group.is_default:
            return "0"
        by_order = _by_order(view)
        if by_order is not None:
            return by_order.get((group.name, group.desc))
        alike = [rank for rank in seen if self.views[rank].statuses.keys() == view.statuses.keys()]
        pg_id = next(iter(seen.values()))
        elsewhere = {str(operation.pg_id) for operation in view.operations}
        if len(alike) == len(seen) and len(set(seen.values())) == 1 and pg_id not in elsewhere:
            return pg_id
        return None


def _ids_seen(group: GroupView) -> dict[int, str]:
    """The pg_id that each rank's entries show."""
    ids = {}
    for rank, collectives in group.collectives.items():
        entries: list[Operation] = next(iter(collectives.values()), group.p2p[rank])
        ids[rank] = str(entries[0].pg_id)
    return ids


def _base(group: GroupView) -> int | None:
    """op id minus sequence, when it is the backend's for every entry; else there are sends and receives among them."""
    offsets = set()
    for rank, collectives in group.collectives.items():
        if group.p2p[rank]:
            return None
        for sequence, operations in collectives.items():
            expected = -1 if operations[0].backend in NEW_BACKENDS else 0
            offsets.update({(expected, operation.op_id - sequence) for operation in operations})
    if len(offsets) != 1:
        return None
    expected, offset = offsets.pop()
    return offset if offset == expected else None


def _by_order(view: RankView) -> dict[tuple[str, str], str] | None:
    """pg_ids are given in the order in which groups are made, and torch names groups by a number that counts up.

    None where that does not fit: another number of groups, no default group, or an entry that says otherwise.
    """
    names = sorted((key for key in view.groups if key[0].isdigit()), key=lambda key: int(key[0]))
    ids = sorted((pg_id for pg_id in view.statuses if pg_id.isdigit()), key=int)
    if not len(names) == len(view.groups) == len(ids) == len(view.statuses):
        return None
    found = dict(zip(names, ids, strict=True))
    said = {(operation.group_name, operation.group_desc): str(operation.pg_id) for operation in view.operations}
    if not any(desc == DEFAULT_DESC for _, desc in found) or any(found.get(key) != said[key] for key in said):
        return None
    return found
