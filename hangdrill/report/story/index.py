"""Numbers for groups and for the names of operations, so that a rank is remembered in bytes.

A group's key holds all its members: to hash thousands of them for each operation is what a big job cannot afford.
"""

from dataclasses import dataclass, field

from hangdrill.model.diagnosis import StuckOperation

__all__ = ["MOST_NAMES", "GroupKey", "Index", "Names"]

MOST_NAMES = 250

GroupKey = tuple[str, str, tuple[int, ...], bool]
"""Name, description and members (none when nobody knows them) of a group; True for its sends and receives."""


@dataclass(slots=True)
class Names:
    """Operation names by number; what comes after MOST_NAMES of them shares one number: "another operation"."""

    names: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """The number of a name, a new one if it is new."""
        known = self.index.get(name)
        if known is not None:
            return known
        if len(self.names) == MOST_NAMES:
            return MOST_NAMES
        self.names.append(name)
        return self.index.setdefault(name, len(self.names) - 1)

    def name(self, number: int) -> str:
        """The name of a number."""
        return self.names[number] if number < len(self.names) else "another operation"


class Index:
    """The names of operations, and the groups by number. stuck: the number of the stuck operation's group."""

    def __init__(self, stuck: StuckOperation | None) -> None:
        self.names = Names()
        self.keys: list[GroupKey] = []
        self._numbers: dict[GroupKey, int] = {}
        self.stuck: int | None = None
        if stuck is not None:
            self.stuck = self.group((stuck.group.name, stuck.group.desc, stuck.group.ranks, stuck.p2p))

    def group(self, key: GroupKey) -> int:
        """The number of a group, a new one if it is new."""
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.keys)
            self.keys.append(key)
        return known
