"""How ranks are folded and labelled, and what a rank is to the stuck operation."""

from collections.abc import Iterable

from hangdrill.diagnosis.signatures import describe, signatures
from hangdrill.diagnosis.words import name_ranks
from hangdrill.model.diagnosis import Basis, Diagnosis, HangKind
from hangdrill.model.dump import Operation
from hangdrill.report.story.values import Role

__all__ = ["Roles", "label_of", "runs_of"]

SHOWN_RUNS = 4
MISMATCHES = {HangKind.SHAPE_MISMATCH, HangKind.DTYPE_MISMATCH, HangKind.OP_MISMATCH}


def runs_of(ranks: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """First and last of each run of neighbours: (0, 2), (5, 5)."""
    runs: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    return tuple(runs)


def label_of(ranks: Iterable[int]) -> str:
    """ "rank 3", "ranks 3-511 (509)", "ranks 0, 2-7, 9-15 (14)"."""
    numbers = sorted(set(ranks))
    if len(numbers) <= 1:
        return name_ranks(numbers)
    runs = runs_of(numbers)
    words = [str(low) if low == high else f"{low}-{high}" for low, high in runs[:SHOWN_RUNS]]
    if len(runs) > SHOWN_RUNS:
        words.append("...")
    return f"ranks {', '.join(words)} ({len(numbers)})"


class Roles:
    """What each rank is to the stuck operation. Sets, because a job has thousands of ranks."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self.stuck = diagnosis.stuck
        self.is_mismatch = self.stuck is not None and diagnosis.kind in MISMATCHES
        self.culprits = frozenset(culprit.rank for culprit in diagnosis.culprits)
        inferred = (culprit.rank for culprit in diagnosis.culprits if culprit.basis is Basis.INFERRED)
        self.inferred = frozenset(inferred)
        self.waiting = frozenset(self.stuck.waiting if self.stuck is not None else ())
        self.absent = frozenset(self.stuck.absent if self.stuck is not None else ())
        self.members = frozenset(self.stuck.group.ranks if self.stuck is not None else ())

    def of(self, rank: int) -> Role:
        """The role of a rank; those outside of the group have none."""
        if rank in self.absent:
            return Role.ABSENT
        if rank in self.waiting:
            return Role.WAITING
        return Role.UNKNOWN if rank in self.members else Role.IDLE

    def is_member(self, rank: int) -> bool:
        """Whether the rank is in the stuck operation's group."""
        return rank in self.members

    def differs(self, operation: Operation | None) -> str:
        """Of a mismatch, how the part in the stuck operation is told apart: "77 elements (Float)". Else empty."""
        stuck = self.stuck
        if operation is None or stuck is None or not self.is_mismatch:
            return ""
        mine = (operation.group_name, operation.sequence, operation.p2p)
        if mine != (stuck.group.name, stuck.sequence, stuck.p2p):
            return ""
        [signature] = signatures([operation])
        return describe(signature).removeprefix(operation.name).strip().removeprefix("of ")
