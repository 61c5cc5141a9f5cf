"""What the dumps say happened. This is the contract `hangdrill.diagnosis/1`; its JSON is generated from here."""

from enum import Enum
from typing import Literal

import msgspec

from hangdrill.model.errors import ExitCode

__all__ = [
    "Basis",
    "Culprit",
    "Diagnosis",
    "HangKind",
    "HangVerdict",
    "RankRoll",
    "StuckGroup",
    "StuckOperation",
    "UnreadableDump",
]


class HangVerdict(Enum):
    """Whether there was a hang; `undecided` when the evidence cannot tell."""

    HANG = "hang"
    NO_HANG = "no-hang"
    UNDECIDED = "undecided"

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of `hangdrill diagnose`."""
        return {"hang": ExitCode.FAIL, "no-hang": ExitCode.PASS, "undecided": ExitCode.UNKNOWN}[self.value]


class HangKind(Enum):
    """What sort of hang."""

    RANK_ABSENT = "rank-absent"
    OP_MISMATCH = "op-mismatch"
    SHAPE_MISMATCH = "shape-mismatch"
    DTYPE_MISMATCH = "dtype-mismatch"
    P2P_UNMATCHED = "p2p-unmatched"
    ORDER_INVERSION = "order-inversion"
    ALL_JOINED = "all-joined"


class Basis(Enum):
    """How a culprit is known: from its own dump, or only from the absence of one."""

    OBSERVED = "observed"
    INFERRED = "inferred"


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that the others waited for, and why it is named."""

    rank: int
    basis: Basis
    why: str


class StuckGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The group of the stuck operation; `ranks` are global."""

    name: str
    desc: str
    ranks: tuple[int, ...]


class StuckOperation(msgspec.Struct, frozen=True, kw_only=True):
    """The operation that everybody ended up waiting for. waiting and absent are global ranks."""

    group: StuckGroup
    op: str
    sequence: int
    p2p: bool
    waiting: tuple[int, ...]
    absent: tuple[int, ...]


class UnreadableDump(msgspec.Struct, frozen=True, kw_only=True):
    """A file that claims to be a dump and is cut or damaged, and how much of it was saved."""

    rank: int | None
    file: str
    error: str
    salvaged_entries: int = 0


class RankRoll(msgspec.Struct, frozen=True, kw_only=True):
    """Who was expected and what became of each."""

    expected: int | None
    present: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    unreadable: tuple[UnreadableDump, ...] = ()
    stale: tuple[int, ...] = ()
    duplicate: tuple[int, ...] = ()
    empty: tuple[int, ...] = ()


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer. `culprits` is sorted by rank; `notes` are sentences for people."""

    schema: Literal["hangdrill.diagnosis/1"] = "hangdrill.diagnosis/1"
    verdict: HangVerdict
    kind: HangKind | None = None
    culprits: tuple[Culprit, ...] = ()
    stuck: StuckOperation | None = None
    ranks: RankRoll
    notes: tuple[str, ...] = ()
