"""Find the files, artifacts and paths of a large run without going through all of them each time. Pure.

A drill of a thousand ranks has thousands of files, and every check asks for each rank's. The index of a tuple is kept
for as long as the same tuple (by identity: it is frozen) is asked for again.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Index"]

Item = TypeVar("Item")


class Index(Generic[Item]):
    """The items of a tuple by a key, several to a key in the tuple's order."""

    def __init__(self, key: Callable[[Item], Hashable]) -> None:
        self._key = key
        self._latest: tuple[tuple[Item, ...], dict[Hashable, tuple[Item, ...]]] = ((), {})

    def find(self, items: tuple[Item, ...], key: Hashable) -> tuple[Item, ...]:
        """The items with this key; none is no error."""
        known, by_key = self._latest
        if known is not items:
            by_key = self._build(items)
            self._latest = (items, by_key)  # one assignment: another thread sees the old pair or the new one
        return by_key.get(key, ())

    def _build(self, items: tuple[Item, ...]) -> dict[Hashable, tuple[Item, ...]]:
        found: dict[Hashable, list[Item]] = {}
        for item in items:
            found.setdefault(self._key(item), []).append(item)
        return {key: tuple(group) for key, group in found.items()}
