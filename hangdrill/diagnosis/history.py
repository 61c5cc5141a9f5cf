"""Everything that one rank recorded, as a table in which only what matters is looked at.

A rank may have recorded thousands of operations, and there may be thousands of ranks. Nearly all of these operations
are over everywhere, and the judgement never asks for them. So each rank puts forward its notable operations (what is
unfinished, and the last of each sort); of all others it is only known that they are over. Whoever needs one of them
after all finds it here.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

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
    """One rank's operations; rows are places in the table."""

    def __init__(self, table: OperationTable) -> None:
        self.table = table
        self._over = [finished(kind) for kind in table.kinds]
        self._keys = [(kind.group_name, kind.group_desc) for kind in table.kinds]
        self._transfers: dict[Key, dict[tuple[str, int | None], list[int]]] | None = None

    def notable(self) -> list[Operation]:
        """What is unfinished, the last of each sort, and the last of all; in the recorder's order."""
        table = self.table
        rows = set(range(max(0, len(table) - LAST), len(table)))
        last: dict[tuple[object, ...], list[int]] = {}
        kinds = bytes(table.kind) if table.kind.itemsize == 1 else table.kind.tolist()
        for number, kind in enumerate(table.kinds):
            if not self._over[number]:
                rows.update(_rows_of(kinds, number))
            last.setdefault(_sort(kind), []).extend(_last_rows_of(kinds, number))
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
        return History(OperationTable.of(operation for operation in self.table if wanted(operation)))


def settle_batches(table: OperationTable) -> OperationTable:
    """Give the parts of a coalesced batch the state of the batch.

    nccl-legacy leaves the parts `scheduled` for good and records the truth in an entry "coalesced" that shares their
    sequence; where that entry was left out because it had finished, so have the parts. Of coalesced collectives there
    may be no parts: then the entry is the operation.
    """
    batches = [rows for rows in _legacy_batches(table) if len(rows) > 1]
    coalesced = [kind.name == "coalesced" for kind in table.kinds]
    if not batches:
        return table
    over = [finished(kind) for kind in table.kinds]
    kinds, kind = list(table.kinds), list(table.kind)
    changed: dict[tuple[int, bool], int] = {}
    for rows in batches:
        done = all(over[kind[row]] for row in rows if coalesced[kind[row]])
        for row in rows:
            if over[kind[row]] is not done:
                place = changed.setdefault((kind[row], done), len(kinds))
                if place == len(kinds):
                    kinds.append(_with_state(kinds[kind[row]], done=done))
                kind[row] = place
    spoken_for = {row for rows in batches for row in rows if coalesced[table.kind[row]]}
    kept = [row for row in range(len(table)) if row not in spoken_for]
    return OperationTable(
        kinds,
        [kind[row] for row in kept],
        record_ids=[table.record_ids[row] for row in kept],
        sequences=[table.sequences[row] for row in kept],
        op_ids=[table.op_ids[row] for row in kept],
        created_ns=[table.created_ns[row] for row in kept],
        started_ns=[table.started_ns[row] for row in kept],
        completed_ns=[table.completed_ns[row] for row in kept],
    )


def _legacy_batches(table: OperationTable) -> Iterable[list[int]]:
    """Rows of nccl-legacy, by group, number space and sequence."""
    places = {
        number: (kind.group_name, kind.group_desc, kind.p2p)
        for number, kind in enumerate(table.kinds)
        if kind.backend == "nccl"
    }
    batches: dict[tuple[object, int], list[int]] = {}
    if places:
        for row, (kind, sequence) in enumerate(zip(table.kind, table.sequences, strict=True)):
            if kind in places:
                batches.setdefault((places[kind], sequence), []).append(row)
    return batches.values()


def _with_state(operation: Operation, *, done: bool) -> Operation:
    state = OperationState.COMPLETED if done else OperationState.SCHEDULED
    return msgspec.structs.replace(operation, state=state, retired=done)


def _sort(kind: Operation) -> tuple[object, ...]:
    """What makes operations of the same sort, for which the last stands."""
    return kind.group_name, kind.group_desc, kind.pg_id, kind.backend, kind.name, kind.p2p, kind.peer, finished(kind)


def _last_rows_of(kinds: bytes | list[int], number: int) -> Iterator[int]:
    """The last LAST_OF_SORT rows of a kind."""
    end = len(kinds)
    for _ in range(LAST_OF_SORT):
        if isinstance(kinds, bytes):
            end = kinds.rfind(number, 0, end)
        else:
            end = next((row for row in range(end - 1, -1, -1) if kinds[row] == number), -1)
        if end < 0:
            return
        yield end


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
