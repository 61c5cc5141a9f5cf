"""The plan of a certification, PLAN.toml as a frozen value: two stacks, what to measure on them, and what is allowed.

The keys are a contract (docs/certify.md). `hangdrill.certify.plan` reads the file and checks across keys.
"""

from enum import Enum
from typing import Literal

import msgspec

__all__ = [
    "UNIT_OF",
    "CertifyPlan",
    "CheckpointPlan",
    "Measure",
    "NamedStack",
    "NodesPlan",
    "Price",
    "RingPlan",
    "RollbackPlan",
    "StackPlan",
    "Threshold",
    "Topology",
    "WorkPlan",
]


class Topology(Enum):
    """How the job of a cell is spread."""

    SINGLE_NODE = "single-node"
    MULTI_NODE = "multi-node"
    DP = "dp"
    FSDP = "fsdp"
    TP = "tp"
    PP = "pp"
    MESH_2D = "2d"
    MULTI_GPU_PROCESS = "multi-gpu-process"
    """Several GPUs in one process."""


class Measure(Enum):
    """What is measured on both stacks and compared. Each has a unit (UNIT_OF); more is worse, but for throughput."""

    INIT_TIME = "init-time"
    START_TIME = "start-time"
    MEMORY_BEFORE_FIRST_STEP = "memory-before-first-step"
    MEMORY_PER_UNUSED_GROUP = "memory-per-unused-group"
    MEMORY_PEAK = "memory-peak"
    COLLECTIVE_LATENCY = "collective-latency"
    P2P_LATENCY = "p2p-latency"
    P2P_START_TIME = "p2p-start-time"
    MEMORY_OF_P2P = "memory-of-p2p"
    THROUGHPUT = "throughput"
    CHECKPOINT_SAVE_TIME = "checkpoint-save-time"
    CHECKPOINT_RESTORE_TIME = "checkpoint-restore-time"
    RECOVERY_TIME = "recovery-time"
    SHUTDOWN_TIME = "shutdown-time"
    SCRIPT_TIME = "script-time"


UNIT_OF: dict[Measure, str] = {
    Measure.INIT_TIME: "s",
    Measure.START_TIME: "s",
    Measure.MEMORY_BEFORE_FIRST_STEP: "MB",
    Measure.MEMORY_PER_UNUSED_GROUP: "MB",
    Measure.MEMORY_PEAK: "MB",
    Measure.COLLECTIVE_LATENCY: "us",
    Measure.P2P_LATENCY: "us",
    Measure.P2P_START_TIME: "s",
    Measure.MEMORY_OF_P2P: "MB",
    Measure.THROUGHPUT: "steps/s",
    Measure.CHECKPOINT_SAVE_TIME: "s",
    Measure.CHECKPOINT_RESTORE_TIME: "s",
    Measure.RECOVERY_TIME: "s",
    Measure.SHUTDOWN_TIME: "s",
    Measure.SCRIPT_TIME: "s",
}
"""MB is 10^6 bytes."""


class StackPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stack: the Python of its environment, or a container image. env is laid over the environment that hangdrill
    runs in; of an image, over the image's own."""

    python: str = ""
    """Must be set, but for an image, where it is a path in it or a word on its PATH, and "python3" by default."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    image: str = ""
    """As the engine knows it: "registry/train:2.15", or an id."""
    mounts: tuple[str, ...] = ()
    """Of an image: directories of this host for every job in it, "SOURCE:TARGET[:ro]"."""


class NamedStack(StackPlan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One more stack, for the table of checkpoint pairs."""

    name: str


class WorkPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same job on both sides: workload, data, seed and launch command are fixed by it."""

    backend: str = "gloo"
    nnodes: int = 1
    nproc_per_node: int = 2
    steps: int = 20
    timeout_s: float = 10.0
    """Of the process group, in the drills."""
    pairs: int = 12
    """How many runs of each stack, alternating; fewer than 8 decide nothing (docs/different.md)."""
    script: str | None = None
    """The user's own training script, which is run on both stacks and drilled, beside the built-in workloads."""
    args: tuple[str, ...] = ()
    """Of the script; {out} in one is a directory made for each run."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    deadline_s: float = 300.0
    """The longest that one run of one job may take."""


class NodesPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a job is started on several nodes, for the topology multi-node. OUT must be a directory that all of them see.

    run: the words before a command that start it on a node: {node} is its name, {command} the whole command as one
    word; without {command} its words follow. Without {node} they are started once, and start it once on each node.
    endpoint: HOST:PORT at which torchrun's agents meet. interface: of the network between the nodes.
    """

    names: tuple[str, ...] = ()
    run: tuple[str, ...]
    endpoint: str
    interface: str = ""


class Threshold(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much worse the candidate may be. It must be worse by more than every limit that is given to count.

    ratio: 0.05 is 5 % of the baseline. absolute: in the unit of the measure.
    """

    ratio: float | None = None
    absolute: float | None = None


class CheckpointPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The checkpoint drill. known_good: directory of an older checkpoint that must be restorable by the baseline.

    save, restore: command lines of the user's own script, beside the built-in training state (docs/checkpoints.md);
    {python} is the stack's Python, {checkpoint} the directory of the checkpoint. limit_s: the longest that one save or
    restore may take.
    """

    modes: tuple[Literal["sync", "async"], ...] = ("sync", "async")
    layouts: tuple[Literal["plain", "fsdp2"], ...] = ("plain", "fsdp2")
    known_good: str | None = None
    save: str = ""
    restore: str = ""
    limit_s: float = 120.0
    stack: tuple[NamedStack, ...] = ()


class RollbackPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fallback: who may pull it, where it lives, how to verify it, and the day on which it expires."""

    owner: str = ""
    where: str = ""
    verify: str = ""
    expires: str = ""
    """"2027-03-31"."""
    roads: tuple[Literal["variable", "backend"], ...] = ("variable", "backend")
    """TORCH_DIST_USE_NCCL2=0, and the backend name nccl-legacy."""


class RingPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stage of the rollout. after: the ring before it, with its signed receipt; not for the first ring."""

    name: str = ""
    order: tuple[str, ...] = ("benchmark-cluster", "internal-workload", "production-team", "everyone")
    receipt_before: str | None = None
    """File of the receipt of the ring before."""
    key: str | tuple[str, ...] | None = None
    """Public key file that the receipt before must be signed with, or several."""
    threshold: int | None = None
    """So many of the keys must have signed it; all, when the plan does not say."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key files, one or several; none when the plan names none."""
        return (self.key,) if isinstance(self.key, str) else self.key or ()


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the whole job's hardware costs an hour."""

    per_hour: float
    currency: str = "USD"


class CertifyPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole plan."""

    title: str
    baseline: StackPlan
    candidate: StackPlan
    topologies: tuple[Topology, ...] = (Topology.SINGLE_NODE,)
    workload: WorkPlan = msgspec.field(default_factory=WorkPlan)
    nodes: NodesPlan | None = None
    """For the topology multi-node."""
    seed: int = 1
    measures: tuple[Measure, ...] = tuple(Measure)
    """What is compared; what is left out is UNKNOWN, and its part of the job is not run."""
    thresholds: dict[Measure, Threshold] = msgspec.field(default_factory=dict)
    """Over the built-in ones."""
    declared: tuple[str, ...] = ("torch",)
    """Patterns of the facts in which the stacks are meant to differ: "torch", "nvidia-*", "env:NCCL_ALGO", and of the
    lines whose difference is accepted: "canary/*/memory-*"."""
    checkpoint: CheckpointPlan = msgspec.field(default_factory=CheckpointPlan)
    rollback: RollbackPlan = msgspec.field(default_factory=RollbackPlan)
    ring: RingPlan = msgspec.field(default_factory=RingPlan)
    price: Price | None = None
    valid_days: int = 30
