"""The receipt of a certification, `hangdrill.receipt/1`: what was measured on two stacks, and what came of it.

A Line is one claim with its verdict; the checklist is these lines, in the order of the items of the plan's record.
`hangdrill.certify` makes them; a cell (certify/cells.py) returns some of them.
"""

from enum import Enum
from typing import Literal

import msgspec

from hangdrill.model.fingerprint import Fingerprint
from hangdrill.model.verdict import Verdict

__all__ = [
    "ITEM_TITLES",
    "CellRecord",
    "CheckpointOutcome",
    "CheckpointPair",
    "Control",
    "Difference",
    "EvidenceFile",
    "Item",
    "Line",
    "PlanRecord",
    "RankProof",
    "Receipt",
    "RollbackRecord",
    "RollbackRoad",
    "StackRecord",
    "Unresolved",
    "Work",
]


class Item(Enum):
    """The items of the plan's record; every line belongs to one."""

    BUILD = "build"
    WHEEL = "wheel"
    DRIVER = "driver"
    TOPOLOGY = "topology"
    BACKEND = "backend"
    BINDING = "device-binding"
    MEMORY = "memory"
    COMMUNICATION = "communication"
    WORK = "work"
    """Startup, throughput, recovery and shutdown: what the cluster gets done."""
    RECORDER = "recorder"
    CHECKPOINT = "checkpoint"
    ROLLBACK = "rollback"
    DIFFERENCES = "differences"


ITEM_TITLES: dict[Item, str] = {
    Item.BUILD: "Build and commit",
    Item.WHEEL: "Wheel",
    Item.DRIVER: "Driver and NCCL/RCCL",
    Item.TOPOLOGY: "Topology and network",
    Item.BACKEND: "Backend",
    Item.BINDING: "Device binding",
    Item.MEMORY: "Initial and peak memory",
    Item.COMMUNICATION: "Collective and p2p behaviour",
    Item.WORK: "Startup, throughput, recovery and shutdown",
    Item.RECORDER: "Recorder delivery",
    Item.CHECKPOINT: "Checkpoint save and restore",
    Item.ROLLBACK: "Rollback",
    Item.DIFFERENCES: "Unresolved differences",
}


class EvidenceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the certification. path is relative to its directory (OUT)."""

    path: str
    bytes: int
    sha256: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One claim of the checklist.

    id: unique in the receipt, the cell's id first: "canary/dp/init-time".
    claim: what PASS means, in a sentence. detail: what was seen. mend: the next step when it is no PASS.
    ratio: candidate over baseline; interval: of the ratio, or of the difference where `rule` says so.
    rule: the stated rule by which "different" was decided, in a sentence.
    declarable: this FAIL is nothing but a difference; a plan that declares it accepts it, and the line passes.
    evidence: paths as in EvidenceFile.
    """

    id: str
    item: Item
    topology: str = ""
    verdict: Verdict
    claim: str
    detail: str = ""
    mend: str = ""
    unit: str = ""
    baseline: tuple[float, ...] = ()
    candidate: tuple[float, ...] = ()
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    rule: str = ""
    evidence: tuple[str, ...] = ()
    declarable: bool = False


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Something in which the stacks differ, found by itself. line: the id of the line that shows it.

    declared: the plan names it (`declared`), so that it is expected; one that is not is unresolved.
    """

    line: str
    what: str
    baseline: str
    candidate: str
    declared: bool = False


class CheckpointOutcome(Enum):
    """What came of restoring one checkpoint."""

    EQUAL = "equal"
    """Parameters, optimizer and step are bit-equal."""
    UNEQUAL = "unequal"
    REFUSED = "refused"
    """Whole, and this stack's torch cannot read it: version trouble."""
    FAILED = "failed"
    """Whole, and not saved or not restored for a reason that is no version trouble: an error of the job itself."""
    HUNG = "hung"
    """Not over in time, and ended."""
    CRASHED = "crashed"
    """A rank died without a word."""
    DAMAGED = "damaged"
    """The files are not what was written: no version trouble."""
    PARTIAL = "partial"
    """A file is missing or cut, or the save never ended: no version trouble."""
    UNKNOWN = "unknown"


class CheckpointPair(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint saved by one stack and restored by another (or the same), in a fresh process each."""

    saved_by: str
    restored_by: str
    mode: Literal["sync", "async"]
    layout: Literal["plain", "fsdp2", "script"]
    """script: what the plan's own `save` and `restore` wrote and read."""
    outcome: CheckpointOutcome
    one_way: bool = False
    """Refused, while the opposite pair is equal: an upgrade that cannot be undone for this checkpoint."""
    detail: str = ""
    evidence: tuple[str, ...] = ()


class RankProof(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank ran, by the class of its process group."""

    rank: int
    backend_class: str
    value: str | None = None
    """Of the variable, as the rank saw it; None: not set."""
    detail: str = ""


class RollbackRoad(msgspec.Struct, frozen=True, kw_only=True):
    """One road back ("TORCH_DIST_USE_NCCL2=0", "nccl-legacy"), and the proof on every rank that it was taken."""

    name: str
    verdict: Verdict
    detail: str = ""
    ranks: tuple[RankProof, ...] = ()
    evidence: tuple[str, ...] = ()


class RollbackRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who may pull the fallback, where it lives, how to verify it, when it expires (a date), and what was proven."""

    owner: str = ""
    where: str = ""
    verify: str = ""
    expires: str = ""
    verdict: Verdict = Verdict.UNKNOWN
    detail: str = ""
    roads: tuple[RollbackRoad, ...] = ()


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """A negative control: something broken on purpose, which must come to `expected`. Else the receipt is UNKNOWN."""

    name: str
    claim: str
    expected: Verdict = Verdict.FAIL
    got: Verdict
    detail: str = ""
    evidence: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        """Whether it came to what it must come to."""
        return self.got is self.expected


class Unresolved(msgspec.Struct, frozen=True, kw_only=True):
    """What nobody has decided yet. line: the id of the line, or empty."""

    line: str
    what: str
    next_step: str = ""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Work from start to end of one stack: startup, checkpoints, the failed run and recovery included.

    per_price: steps for one unit of the plan's currency; None without a price.
    """

    stack: str
    topology: str
    steps: int
    wall_s: float
    steps_per_hour: float
    steps_per_price: float | None = None
    currency: str = ""


class StackRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stack as the plan names it, with its fingerprint, or why there is none."""

    name: str
    python: str
    env: dict[str, str] = msgspec.field(default_factory=dict)
    fingerprint: Fingerprint | None = None
    digest: str = ""
    """Of the fingerprint's identity."""
    missing: str = ""
    next_step: str = ""
    image: str = ""
    """The container image that it is; python is then in it."""
    mounts: tuple[str, ...] = ()
    """Of an image: "SOURCE:TARGET[:ro]"."""


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The plan as given: its text, word for word."""

    path: str
    sha256: str
    text: str


class CellRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of the matrix. verdict: merged from its lines. resumed: from an earlier run, begun at began_at."""

    id: str
    topology: str
    verdict: Verdict
    ran: bool
    wall_s: float = 0.0
    resumed: bool = False
    began_at: str = ""
    why_not: str = ""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The whole certification. Times are UTC, RFC 3339 ("2026-11-29T23:40:00Z")."""

    schema: Literal["hangdrill.receipt/1"] = "hangdrill.receipt/1"
    id: str
    title: str
    verdict: Verdict
    sentence: str
    """What came of it, in one sentence."""
    plan: PlanRecord
    baseline: StackRecord
    candidate: StackRecord
    other_stacks: tuple[StackRecord, ...] = ()
    who: str
    host: str = ""
    hangdrill: str
    """The version that made it."""
    began_at: str
    made_at: str
    valid_until: str
    ring: str = ""
    previous_ring: str = ""
    """The ring that had to be passed before this one."""
    previous_receipt_sha256: str = ""
    cells: tuple[CellRecord, ...] = ()
    lines: tuple[Line, ...] = ()
    differences: tuple[Difference, ...] = ()
    checkpoint_pairs: tuple[CheckpointPair, ...] = ()
    rollback: RollbackRecord = msgspec.field(default_factory=RollbackRecord)
    controls: tuple[Control, ...] = ()
    work: tuple[Work, ...] = ()
    unresolved: tuple[Unresolved, ...] = ()
    artifacts: tuple[EvidenceFile, ...] = ()
