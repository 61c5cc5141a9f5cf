"""What the rows of the pair table mean together: which failures are version trouble, and which ways are one-way. Pure.

A whole checkpoint that a stack cannot restore is version trouble only if the stack that saved it can: else the job, the
state or the storage is at fault, and no version is blamed.
"""

from collections.abc import Iterable, Mapping

import msgspec

from hangdrill.model.receipt import CheckpointOutcome, CheckpointPair

__all__ = ["BAD_ENDS", "judged"]

Key = tuple[str, str, str, str]
BAD_ENDS = (
    CheckpointOutcome.REFUSED,
    CheckpointOutcome.UNEQUAL,
    CheckpointOutcome.HUNG,
    CheckpointOutcome.CRASHED,
)
"""What a stack can make of a whole checkpoint that it cannot restore."""


def judged(pairs: Iterable[CheckpointPair]) -> tuple[CheckpointPair, ...]:
    """The rows in their order, with one_way set, and REFUSED kept only where it is version trouble."""
    rows = tuple(pairs)
    outcomes: dict[Key, CheckpointOutcome] = {
        (row.saved_by, row.restored_by, row.layout, row.mode): row.outcome for row in rows
    }
    return tuple(_judged(row, outcomes) for row in rows)


def _judged(row: CheckpointPair, outcomes: Mapping[Key, CheckpointOutcome]) -> CheckpointPair:
    def outcome(by: str, to: str) -> CheckpointOutcome:
        return outcomes.get((by, to, row.layout, row.mode), CheckpointOutcome.UNKNOWN)

    own = outcome(row.saved_by, row.saved_by)
    if row.outcome is CheckpointOutcome.REFUSED and own is CheckpointOutcome.UNKNOWN:
        why = "not known whether the stack that saved it can restore it, so no version is blamed"
        return msgspec.structs.replace(row, outcome=CheckpointOutcome.UNKNOWN, detail=f"{why}: {row.detail}")
    if row.outcome is CheckpointOutcome.REFUSED and own is not CheckpointOutcome.EQUAL:
        is_own = row.saved_by == row.restored_by
        why = "the stack that saved it cannot restore it" + ("" if is_own else " either")
        return msgspec.structs.replace(row, outcome=CheckpointOutcome.FAILED, detail=f"{why}: {row.detail}")
    returns = outcome(row.restored_by, row.saved_by) is CheckpointOutcome.EQUAL
    is_one_way = row.outcome in BAD_ENDS and own is CheckpointOutcome.EQUAL and returns
    return msgspec.structs.replace(row, one_way=is_one_way)
