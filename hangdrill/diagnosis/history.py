"""Everything that one rank recorded, as a table in which only what matters is looked at.

A rank may have recorded thousands of operations, and there may be thousands of ranks. Nearly all of these operations
are over everywhere, and the judgement never asks for them. So each rank puts forward its notable operations (what is
unfinished, and the last of each sort); of all others it is only known that they are over. Whoever needs one of them
after all finds it here.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from hangdrill.model.dump import Operation, OperationState
from hangdrill.model.table import OperationTable

__all__ = ["NEW_BACKENDS", "History", "Key", "finished", "seems_finished_at_once"]

LAST = 16
"""So many operations before the end are always notable."""
LAST_OF_SORT = 2
NEW_BACKENDS = frozenset({"nccl2", "nccl-lazy"})
"""The rewritten NCCL backend: they number operations from 0, and record batches as completed when they are issued."""
INSTANT_NS = 200_000
"""nccl2 records a batched send or receive as completed about 1 us after it is issued; nothing real is that quick."""

Key = tuple[str, str]
"""A group's name and description."""


def finished(operation: Operation) -> bool:
    """Whether the recorder says that the operation is over (gloo says it by `retired` only)."""
    return operation.retired or operation.state is OperationState.COMPLETED


def seems_finished_at_once(operation: Operation) -> bool:
    """nccl2's batched send or receive: recorded as completed when it is issued, so that this proves nothing."""
    return (
        operation.p2p
        and operation.backend in NEW_BACKENDS
        and operation.completed_ns is not None
        and operation.completed_ns - operation.created_ns < INSTANT_NS
    )


class History:
    """One rank's operations; rows are places in the table. parts: record numbers of operations that are parts of a
    batch, whose state is that of the batch."""

    def __init__(self, table: OperationTable, parts: frozenset[int] = frozenset()) -> None:
        self.table = table
        self.parts = parts
        self._over = [finished(kind) for kind in table.kinds]
        self._keys = [(kind.group_name, kind.group_desc) for kind in table.kinds]
        self._transfers: dict[Key, dict[tuple[str, int | None], list[int]]] | None = None

    @cached_property
    def first_open(self) -> int | None:
        """The row of the first unfinished operation."""
        return next((row for row, kind in enumerate(self.table.kind) if not self._over[kind]), None)

    def notable(self) -> list[Operation]:
        """What is unfinished, the last of each sort, and the last of all; in the recorder's order."""
        table = self.table
        rows = set(range(max(0, len(table) - LAST), len(table)))
        last: dict[tuple[object, ...], list[int]] = {}
        places = _places(table.kind, len(table.kinds), self._over)
        for number, kind in enumerate(table.kinds):
            if not self._over[number]:
                rows.update(places[number])
            last.setdefault(_sort(kind), []).extend(places[number][-LAST_OF_SORT:])
        for some in last.values():
            rows.update(sorted(some)[-LAST_OF_SORT:])
        rows.update(beside for row in tuple(rows) for beside in self._of_same_batch(row))
        return [table[row] for row in sorted(rows)]

    def _of_same_batch(self, row: int) -> Iterator[int]:
        """The collectives around a row that share its sequence."""
        kind, sequence = self.table.kind, self.table.sequences
        for step in (-1, 1):
            beside = row + step
            while (
                0 <= beside < len(kind)
                and sequence[beside] == sequence[row]
                and self._keys[kind[beside]] == self._keys[kind[row]]
                and not self.table.kinds[kind[beside]].p2p
            ):
                yield beside
                beside += step

    def find(self, key: Key, sequence: int) -> list[Operation]:
        """The collectives of a group that have this sequence."""
        return [
            self.table[row]
            for row in _rows_of(self.table.sequences, sequence)
            if self._keys[self.table.kind[row]] == key and not self.table.kinds[self.table.kind[row]].p2p
        ]

    def sequences(self, key: Key) -> set[int]:
        """The sequences of all collectives of a group."""
        wanted = {number for number, kind in enumerate(self.table.kinds) if self._keys[number] == key and not kind.p2p}
        return {
            sequence for sequence, kind in zip(self.table.sequences, self.table.kind, strict=True) if kind in wanted
        }

    def transfers(self, key: Key) -> dict[tuple[str, int | None], list[int]]:
        """The rows of a group's sends and receives, by name and peer."""
        if self._transfers is None:
            self._transfers = {}
            for row in self._p2p_rows():
                kind = self.table.kind[row]
                place = self.table.kinds[kind]
                self._transfers.setdefault(self._keys[kind], {}).setdefault((place.name, place.peer), []).append(row)
        return self._transfers.get(key, {})

    def over(self, row: int) -> bool:
        """Whether the operation is finished, by the record."""
        return self._over[self.table.kind[row]]

    def over_at_once(self, row: int) -> bool:
        """`seems_finished_at_once` of it."""
        kind = self.table.kinds[self.table.kind[row]]
        if not kind.p2p or kind.backend not in NEW_BACKENDS or kind.completed_ns is None:
            return False
        return self.table.completed_ns[row] - self.table.created_ns[row] < INSTANT_NS

    def any_over_at_once(self) -> bool:
        """Whether any operation is such a one."""
        return any(map(self.over_at_once, self._p2p_rows()))

    def _p2p_rows(self) -> Iterator[int]:
        p2p = [kind.p2p for kind in self.table.kinds]
        return (row for row, kind in enumerate(self.table.kind) if p2p[kind]) if any(p2p) else iter(())

    def keep(self, wanted: Callable[[Operation], bool]) -> "History":
        """The history of the operations that are wanted."""
        return History(OperationTable.of(operation for operation in self.table if wanted(operation)), self.parts)


def _sort(kind: Operation) -> tuple[object, ...]:
    """What makes operations of the same sort, for which the last stands."""
    return kind.group_name, kind.group_desc, kind.pg_id, kind.backend, kind.name, kind.p2p, kind.peer, finished(kind)


def _places(column: Sequence[int], count: int, over: list[bool]) -> list[list[int]]:
    """For each kind the rows it is in: all of them, or of one that is over at least the last LAST_OF_SORT."""
    if count > 0x100:
        places: list[list[int]] = [[] for _ in range(count)]
        for row, kind in enumerate(column):
            places[kind].append(row)
        return places
    kinds = bytes(column)
    return [_last_rows(kinds, kind) if over[kind] else list(_rows_of(column, kind)) for kind in range(count)]


def _last_rows(kinds: bytes, kind: int) -> list[int]:
    found: list[int] = []
    end = len(kinds)
    while len(found) < LAST_OF_SORT and (end := kinds.rfind(kind, 0, end)) >= 0:
        found.append(end)
    return found[::-1]


def _rows_of(column: Iterable[int], value: int) -> Iterator[int]:
    """The rows at which a column holds a value."""
    if isinstance(column, range):
        if value in column:
            yield column.index(value)
        return
    row = -1
    try:
        while True:
            row = column.index(value, row + 1)  # type: ignore[attr-defined] # a tuple or an array
            yield row
    except (ValueError, OverflowError):
        return
