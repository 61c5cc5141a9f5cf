"""The operations of one rank, kept by columns: a tenth of the memory of as many `Operation` values, and quick to send.

What operations of one call site share (name, group, sizes, dtypes, state, stack) is kept once, as a kind; only the
integers that differ from one operation to the next are kept for each. An `Operation` is made when it is asked for.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import overload

import msgspec

from hangdrill.model.dump import Operation

__all__ = ["OperationTable", "kind_of"]

Column = Sequence[int]


class OperationTable(Sequence[Operation]):
    """A sequence of operations, in the recorder's order (oldest first).

    kinds: an operation of each kind, its own integers 0 (the times None where its operations have none). kind: for
    each operation, the index of its kind. The other columns are as in `Operation`; a time of 0 is None.
    """

    __slots__ = ("completed_ns", "created_ns", "kind", "kinds", "op_ids", "record_ids", "sequences", "started_ns")

    def __init__(
        self,
        kinds: Sequence[Operation],
        kind: Iterable[int],
        *,
        record_ids: Sequence[int],
        sequences: Sequence[int],
        op_ids: Sequence[int],
        created_ns: Sequence[int],
        started_ns: Sequence[int],
        completed_ns: Sequence[int],
    ) -> None:
        self.kinds = tuple(kinds)
        self.kind = array("B" if len(self.kinds) <= 0x100 else "L", kind)
        self.record_ids = _column(record_ids)
        self.sequences = _column(sequences)
        self.op_ids = _column(op_ids)
        self.created_ns = _column(created_ns)
        self.started_ns = _column(started_ns)
        self.completed_ns = _column(completed_ns)

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> "OperationTable":
        """The table of these operations; a table is returned as it is.

        Sizes, dtypes and stacks are compared by identity (a dump may hold huge ones many times over), so those that
        are equal and not the same make kinds of their own.
        """
        if isinstance(operations, OperationTable):
            return operations
        items = list(operations)
        kinds: dict[tuple[object, ...], tuple[int, Operation]] = {}
        kind = []
        for item in items:
            key = _key(item)
            if key not in kinds:
                kinds[key] = len(kinds), kind_of(item)
            kind.append(kinds[key][0])
        return cls(
            [first for _, first in kinds.values()],
            kind,
            record_ids=[item.record_id for item in items],
            sequences=[item.sequence for item in items],
            op_ids=[item.op_id for item in items],
            created_ns=[item.created_ns for item in items],
            started_ns=[item.started_ns or 0 for item in items],
            completed_ns=[item.completed_ns or 0 for item in items],
        )

    def __len__(self) -> int:
        return len(self.kind)

    @overload
    def __getitem__(self, index: int) -> Operation: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Operation]: ...

    def __getitem__(self, index: int | slice) -> Operation | Sequence[Operation]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        kind = self.kinds[self.kind[index]]
        return msgspec.structs.replace(
            kind,
            record_id=self.record_ids[index],
            sequence=self.sequences[index],
            op_id=self.op_ids[index],
            created_ns=self.created_ns[index],
            started_ns=None if kind.started_ns is None else self.started_ns[index] or None,
            completed_ns=None if kind.completed_ns is None else self.completed_ns[index] or None,
        )

    def __iter__(self) -> Iterator[Operation]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(map(Operation.__eq__, self, other))

    def __hash__(self) -> int:
        return hash((len(self), tuple(self.record_ids[:4]), tuple(self.created_ns[:4])))

    def __repr__(self) -> str:
        return f"<OperationTable of {len(self)} operations of {len(self.kinds)} kinds>"


def kind_of(operation: Operation) -> Operation:
    """What the operation has in common with others of its kind."""
    return msgspec.structs.replace(
        operation,
        record_id=0,
        sequence=0,
        op_id=0,
        created_ns=0,
        started_ns=None if operation.started_ns is None else 0,
        completed_ns=None if operation.completed_ns is None else 0,
    )


def _key(operation: Operation) -> tuple[object, ...]:
    return (
        operation.pg_id, operation.group_name, operation.group_desc, operation.name, operation.backend, operation.p2p,
        operation.peer, operation.state, operation.retired, operation.timeout_ms,
        operation.started_ns is None, operation.completed_ns is None,
        id(operation.input_sizes), id(operation.input_dtypes), id(operation.output_sizes), id(operation.output_dtypes),
        id(operation.frames),
    )  # fmt: skip


def _column(values: Sequence[int]) -> Column:
    """The values in the smallest form that holds them: a range, or an array of 32 or 64 bits."""
    size = len(values)
    if size and values[-1] - values[0] == size - 1 and all(map(int.__eq__, values, range(values[0], values[-1] + 1))):
        return range(values[0], values[-1] + 1)
    for code in "iqQ":
        with suppress(OverflowError):
            return array(code, values)
    return tuple(values)
