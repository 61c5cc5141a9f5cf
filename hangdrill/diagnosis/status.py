"""What `pg_status` says of a group's collectives, where it can be understood.

`pg_status` is keyed by the recorder's pg_id, which numbers the groups of one process: in another process the same
group may have another. It stores op ids (nccl2 from 0, others from 1), which count sends and receives too; so it tells
the sequence only of groups in which there were none.
"""

from hangdrill.diagnosis.groups import DEFAULT_DESC, GroupView
from hangdrill.diagnosis.history import NEW_BACKENDS, Key
from hangdrill.diagnosis.views import RankView
from hangdrill.model.dump import GroupStatus, Operation

__all__ = ["StatusBook"]


class StatusBook:
    """The statuses of all ranks, matched with the groups."""

    def __init__(self, views: dict[int, RankView], groups: list[GroupView]) -> None:
        self.views = views
        self._ids = {id(group): _ids_seen(group) for group in groups}
        self._bases = {id(group): _base(group) for group in groups}
        self._same = {id(group): self._same_everywhere(group) for group in groups}
        self._by_order: dict[int, dict[Key, str] | None] = {}

    def entered(self, group: GroupView, rank: int) -> int | None:
        """How many collectives of the group the rank has entered by its pg_status; None when that cannot be told."""
        status, base = self._status(group, rank)
        if status is None:
            return None
        return max(0, status.last_enqueued - base) if status.last_enqueued >= 0 else 0

    def completed(self, group: GroupView, rank: int) -> int | None:
        """How many of them are over, likewise. gloo counts what has failed, so its last one does not count."""
        status, base = self._status(group, rank)
        if status is None:
            return None
        gloo = any(operations[0].backend == "gloo" for operations in group.collectives.get(rank, {}).values())
        return max(0, status.last_completed - base - gloo) if status.last_completed >= 0 else 0

    def _status(self, group: GroupView, rank: int) -> tuple[GroupStatus | None, int]:
        view, base = self.views.get(rank), self._bases[id(group)]
        if view is None or base is None:
            return None, 0
        return view.statuses.get(self._pg_id(group, view) or ""), base

    def _pg_id(self, group: GroupView, view: RankView) -> str | None:
        """The rank's own pg_id of the group: from its entries, or from the order in which groups are made."""
        seen = self._ids[id(group)]
        if view.rank in seen:
            return seen[view.rank]
        if group.is_default:
            return "0"
        if view.rank not in self._by_order:
            self._by_order[view.rank] = _by_order(view)
        by_order = self._by_order[view.rank]
        if by_order is not None:
            return by_order.get(group.key)
        statuses, pg_id = self._same[id(group)]
        if statuses is None or statuses != view.statuses.keys():
            return None
        return None if any(str(operation.pg_id) == pg_id for operation in view.operations) else pg_id

    def _same_everywhere(self, group: GroupView) -> tuple[frozenset[str] | None, str]:
        """The pg_id that all who used the group have for it, and the pg_ids that all of them have; None where they
        differ."""
        seen = self._ids[id(group)]
        statuses = {frozenset(self.views[rank].statuses) for rank in seen}
        ids = set(seen.values())
        return (statuses.pop(), ids.pop()) if len(statuses) == len(ids) == 1 else (None, "")


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
