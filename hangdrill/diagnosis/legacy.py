"""What nccl-legacy's recorder says, set right: it cannot tell how far the parts of a batch are, nor what waits behind.

A batch of sends and receives, or of coalesced collectives, leaves an entry for each part, `scheduled` for good, and at
its end one called "coalesced" that tells the truth. And the recorder asks the GPU whether an operation is over, which
says yes also of one whose turn has not come: only `retired` is sure.
"""

from collections.abc import Iterable, Iterator

import msgspec

from hangdrill.diagnosis.history import finished
from hangdrill.model.dump import Operation, OperationState
from hangdrill.model.table import OperationTable

__all__ = ["settle"]


def settle(table: OperationTable) -> tuple[OperationTable, frozenset[int]]:
    """The table with each part in the state of its batch, without the entries that end batches, and with nothing
    finished that stands behind something unfinished; and the record numbers of all parts, of which nobody knows more
    than of their batch. Unchanged where there is no nccl-legacy."""
    rows = [row for row, kind in enumerate(table.kind) if table.kinds[kind].backend == "nccl"] if _legacy(table) else []
    if not rows:
        return table, frozenset()
    over: dict[int, bool] = {}
    ends = set()
    for end, parts in _batches(table, rows):
        done = all(finished(table.kinds[table.kind[row]]) for row in end)
        over.update(dict.fromkeys(parts, done))
        ends.update(end)
    all_parts = frozenset(table.record_ids[row] for row in over)
    over.update(_not_yet(table, rows, over))
    return _changed(table, over, ends), all_parts


def _legacy(table: OperationTable) -> bool:
    return any(kind.backend == "nccl" for kind in table.kinds)


def _batches(table: OperationTable, rows: Iterable[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The entries that end a batch, and its parts.

    Parts share their sequence. The end has the number (`op_id`) of the last part; of coalesced collectives also their
    sequence. An end without parts is the operation itself, and parts without an end are over: it was left out because
    it had finished.
    """
    parts: dict[tuple[object, ...], list[int]] = {}
    by_number: dict[tuple[object, ...], tuple[object, ...]] = {}
    ends: dict[tuple[object, ...], list[int]] = {}
    for row in rows:
        kind = table.kinds[table.kind[row]]
        own = (kind.group_name, kind.group_desc, kind.p2p, table.sequences[row])
        number = (kind.group_name, kind.group_desc, table.op_ids[row])
        if kind.name != "coalesced":
            parts.setdefault(own, []).append(row)
            by_number[number] = own
            continue
        batch = by_number.get(number, own)
        if batch in parts:
            ends.setdefault(batch, []).append(row)
    for batch, some in parts.items():
        if batch in ends or len(some) > 1:
            yield ends.get(batch, []), some


def _not_yet(table: OperationTable, rows: Iterable[int], over: dict[int, bool]) -> Iterator[tuple[int, bool]]:
    """Collectives that are said to be completed, not retired, behind an unfinished one of their group."""
    waiting: set[tuple[str, str]] = set()
    for row in rows:
        kind = table.kinds[table.kind[row]]
        place = kind.group_name, kind.group_desc
        if kind.p2p or kind.name == "coalesced":
            continue
        if not over.get(row, finished(kind)):
            waiting.add(place)
        elif place in waiting and not kind.retired:
            yield row, False


def _changed(table: OperationTable, over: dict[int, bool], ends: set[int]) -> OperationTable:
    kinds, kind = list(table.kinds), list(table.kind)
    changed: dict[tuple[int, bool], int] = {}
    for row, done in over.items():
        if finished(kinds[kind[row]]) is not done:
            place = changed.setdefault((kind[row], done), len(kinds))
            if place == len(kinds):
                kinds.append(_with_state(kinds[kind[row]], done=done))
            kind[row] = place
    kept = [row for row in range(len(table)) if row not in ends]
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


def _with_state(operation: Operation, *, done: bool) -> Operation:
    state = OperationState.COMPLETED if done else OperationState.SCHEDULED
    return msgspec.structs.replace(operation, state=state, retired=done)
