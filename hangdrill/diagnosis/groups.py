"""Who is in which group. A group is its name, its description and its members.

Members come from the rank's own `pg_config`, else from the launch record, else from a peer's `pg_config`; of the
default group also from the world size. Failing all that they are the ranks that were seen using the group, and then
nothing may be concluded from a rank that was not (`certain` is False).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hangdrill.diagnosis.history import Key
from hangdrill.diagnosis.views import RankView
from hangdrill.model.dump import Group, Operation

__all__ = ["DEFAULT_DESC", "GroupView", "distinct", "resolve_groups"]

DEFAULT_DESC = "default_pg"

Members = tuple[int, ...]


@dataclass(slots=True)
class GroupView:
    """One group and what each rank recorded in it.

    ranks: global, in the order of their group ranks. collectives[rank][sequence] may hold several (coalesced ones).
    """

    name: str
    desc: str
    ranks: Members
    certain: bool
    collectives: dict[int, dict[int, list[Operation]]] = field(default_factory=dict)
    p2p: dict[int, list[Operation]] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Its name and description."""
        return self.name, self.desc

    @property
    def is_default(self) -> bool:
        """Whether this is the group of all ranks."""
        return self.desc == DEFAULT_DESC

    @property
    def sort_key(self) -> tuple[bool, str, str, Members]:
        """The default group first, then by name."""
        return (not self.is_default, self.name, self.desc, self.ranks)


def resolve_groups(
    views: dict[int, RankView], launch_groups: Iterable[Group], world_size: int | None
) -> list[GroupView]:
    """All groups that some rank recorded an operation in, in a fixed order."""
    told = _lists((group.name, group.desc, group.ranks) for group in launch_groups)
    configured = _lists((*key, ranks) for view in views.values() for key, ranks in view.groups.items())
    groups: dict[tuple[Key, Members], GroupView] = {}
    by_list: dict[tuple[Key, int], GroupView] = {}  # to hash long lists once only; views keep the lists alive
    unknown: dict[Key, dict[int, list[Operation]]] = {}
    for view in views.values():
        for key, operations in _by_group(view.operations).items():
            members = _members(view, key, (told, configured), world_size)
            if members is None:
                unknown.setdefault(key, {})[view.rank] = operations
            else:
                group = by_list.get((key, id(members)))
                if group is None:
                    group = groups.setdefault((key, members), GroupView(*key, members, certain=True))
                    by_list[key, id(members)] = group
                _record(group, view.rank, operations)
    for key, by_rank in unknown.items():
        members = _seen_members(key[1], by_rank, views)
        group = groups.setdefault((key, members), GroupView(*key, members, certain=False))
        for rank, operations in by_rank.items():
            _record(group, rank, operations)
    return sorted(groups.values(), key=lambda group: group.sort_key)


def _lists(groups: Iterable[tuple[str, str, Members]]) -> dict[Key, list[Members]]:
    """The member lists under each name and description; several groups may share both."""
    found: dict[Key, list[Members]] = {}
    for name, desc, ranks in groups:
        found.setdefault((name, desc), []).append(ranks)
    return {key: [ranks for ranks in distinct(lists) if ranks] for key, lists in found.items()}


def distinct(lists: Iterable[Members]) -> list[Members]:
    """Each list once, in order; those that are the same object are compared as such, for they may be long and many."""
    objects = {id(ranks): ranks for ranks in lists}
    return list(dict.fromkeys(objects.values()))


def _by_group(operations: list[Operation]) -> dict[Key, list[Operation]]:
    found: dict[Key, list[Operation]] = {}
    for operation in operations:
        found.setdefault((operation.group_name, operation.group_desc), []).append(operation)
    return found


def _members(
    view: RankView, key: Key, sources: Iterable[dict[Key, list[Members]]], world_size: int | None
) -> Members | None:
    if own := view.groups.get(key):
        return own
    for lists in sources:
        fitting = [ranks for ranks in lists.get(key, ()) if view.rank in ranks]
        if len(fitting) == 1:
            return fitting[0]
    if key[1] == DEFAULT_DESC and world_size is not None:
        return tuple(range(world_size))
    return None


def _seen_members(desc: str, users: Iterable[int], views: dict[int, RankView]) -> Members:
    """Those who used the group; of the default group, everybody who was seen or mentioned."""
    seen = set(users)
    if desc == DEFAULT_DESC:
        seen.update(views, *distinct(ranks for view in views.values() for ranks in view.mentioned))
    return tuple(sorted(seen))


def _record(group: GroupView, rank: int, operations: list[Operation]) -> None:
    collectives: dict[int, list[Operation]] = {}
    for operation in operations:
        if not operation.p2p:
            collectives.setdefault(operation.sequence, []).append(operation)
    group.collectives[rank] = collectives
    group.p2p[rank] = [operation for operation in operations if operation.p2p]
