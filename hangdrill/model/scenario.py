"""A scenario as a frozen value: what job to run, which fault to place, what to expect.

The keys are a contract (docs/reference/scenario.md). Reading TOML, defaults from the command line and the checks
across keys are in `hangdrill.drill.scenario_file`.
"""

from enum import Enum
from typing import Literal

import msgspec

from hangdrill.model.container import Container
from hangdrill.model.diagnosis import HangKind
from hangdrill.model.kubernetes import Kubernetes
from hangdrill.model.sizes import parse_size

__all__ = [
    "CONTAINED",
    "HOST_FAULTS",
    "LINK_FAULTS",
    "TEARDOWNS_OF",
    "Before",
    "Expect",
    "Fault",
    "FaultKind",
    "Incident",
    "Job",
    "LauncherName",
    "Recorder",
    "Scenario",
    "Teardown",
    "Trigger",
    "Volume",
    "WorkloadName",
]


class LauncherName(Enum):
    """Who starts the ranks."""

    TORCHRUN = "torchrun"
    BWRAP = "bwrap"
    CONTAINER = "container"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


class WorkloadName(Enum):
    """The built-in workloads; each is real training code, small enough for 4 to 8 gloo ranks on two cores."""

    ALL_REDUCE = "all-reduce"
    DDP = "ddp"
    FSDP2 = "fsdp2"
    TENSOR_PARALLEL = "tensor-parallel"
    PIPELINE = "pipeline"
    MESH_2D = "mesh-2d"
    ALL_TO_ALL = "all-to-all"
    COALESCED = "coalesced"


class FaultKind(Enum):
    """What is done to the chosen ranks."""

    NONE = "none"
    HOLD = "hold"
    HOLD_GIL = "hold-gil"
    STOP = "stop"
    SPIN = "spin"
    SKIP = "skip"
    WRONG_OP = "wrong-op"
    WRONG_SHAPE = "wrong-shape"
    WRONG_DTYPE = "wrong-dtype"
    RAISE = "raise"
    KILL = "kill"
    EXIT = "exit"
    SLOW = "slow"
    IN_DESTROY = "in-destroy"
    DATALOADER = "dataloader"
    GPU_KERNEL = "gpu-kernel"
    OOM = "oom"
    STORE_DEATH = "store-death"
    LINK_DOWN = "link-down"
    LINK_LOSS = "link-loss"
    LINK_SLOW = "link-slow"
    HOST_DEATH = "host-death"
    AGENT_KILL = "agent-kill"


LINK_FAULTS = frozenset({FaultKind.LINK_DOWN, FaultKind.LINK_LOSS, FaultKind.LINK_SLOW})
"""Placed on a network interface of a host."""
HOST_FAULTS = LINK_FAULTS | {FaultKind.HOST_DEATH, FaultKind.AGENT_KILL}
"""Placed on a host of a job on several, by that host's node process; no rank is to blame for them."""


class Trigger(Enum):
    """Which road the evidence takes out of the ranks."""

    NATIVE = "native"
    DEBUG_SERVER = "debug-server"
    COLLECTOR = "collector"


class Teardown(Enum):
    """What the dumps must survive. Which launcher can do which is in TEARDOWNS_OF."""

    JOB_EXIT = "job-exit"
    PROCESS_KILL = "process-kill"
    RESTART = "restart"
    CONTAINER_REMOVAL = "container-removal"
    POD_DELETION = "pod-deletion"
    NODE_TMP_WIPE = "node-tmp-wipe"
    SCHEDULER_CANCEL = "scheduler-cancel"
    OOM_KILL = "oom-kill"
    HOST_LOSS = "host-loss"


TMPFS = "tmpfs"
"""The source of a volume in memory."""


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A place that a container sees. source: an absolute path of this host, a name for a directory in the run
    directory, or "tmpfs": memory of the container, which goes with it; size_bytes is its limit."""

    source: str
    target: str
    read_only: bool = False
    size_bytes: int | None = None

    @property
    def in_memory(self) -> bool:
        """Whether it is a tmpfs of the container."""
        return self.source == TMPFS

    @classmethod
    def parse(cls, text: str) -> "Volume":
        """ "SOURCE:TARGET[:ro]" or "tmpfs:TARGET[:size=64k]". ValueError with the reason when it is neither."""
        source, _, rest = text.partition(":")
        target, _, option = rest.partition(":")
        if not source or not target:
            raise ValueError("it must be SOURCE:TARGET")
        word, _, size = option.partition("=")
        if word == "size" and source != TMPFS:
            raise ValueError("only a tmpfs has a size")
        if word == "size":
            option = ""
        elif option not in ("", "ro", "rw"):
            raise ValueError(f'unknown option "{option}"')
        if not target.startswith("/") or not target.strip("/") or {".", ".."} & set(target.split("/")):
            raise ValueError(f"the target must be an absolute path below /, got {target}")
        if not source.startswith("/") and ("/" in source or source.startswith(".")):
            raise ValueError(f"the source must be an absolute path or a plain name, got {source}")
        size_bytes = parse_size(size) if word == "size" else None
        return cls(source=source, target=target.rstrip("/"), read_only=option == "ro", size_bytes=size_bytes)


def _parse(text: str) -> Volume | None:
    try:
        return Volume.parse(text)
    except ValueError:
        return None


CONTAINED = frozenset({LauncherName.BWRAP, LauncherName.CONTAINER, LauncherName.KUBERNETES})
"""The launchers whose jobs have a file system of their own, which goes with them."""


TEARDOWNS_OF: dict[Teardown, frozenset[LauncherName]] = {
    Teardown.JOB_EXIT: frozenset(LauncherName),
    Teardown.PROCESS_KILL: frozenset(LauncherName),
    Teardown.RESTART: frozenset(LauncherName),
    Teardown.CONTAINER_REMOVAL: CONTAINED - {LauncherName.KUBERNETES},
    Teardown.POD_DELETION: frozenset({LauncherName.KUBERNETES}),
    Teardown.NODE_TMP_WIPE: frozenset({LauncherName.SLURM}),
    Teardown.SCHEDULER_CANCEL: frozenset({LauncherName.SLURM}),
    Teardown.OOM_KILL: frozenset({LauncherName.CONTAINER}),
    Teardown.HOST_LOSS: frozenset({LauncherName.TORCHRUN, LauncherName.SLURM}),
}
"""Which launchers can put a job through which teardown; host-loss needs more than one node as well."""


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The job that is drilled. Exactly one of workload and script is set."""

    launcher: LauncherName = LauncherName.TORCHRUN
    nnodes: int = 1
    nproc_per_node: int = 2
    backend: str = "gloo"
    workload: WorkloadName | None = None
    script: str | None = None
    args: tuple[str, ...] = ()
    steps: int = 12
    timeout_s: float = 5.0
    max_restarts: int = 0
    rdzv_backend: Literal["static", "c10d"] | None = None
    """How the hosts of a job on several meet: static numbers the ranks by the hosts' numbers, c10d by their addresses;
    None: static, and c10d where the job may restart, since only that one restarts all hosts together."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    volumes: tuple[str, ...] = ()
    """For a job in a container: "SOURCE:TARGET[:ro]", see Volume."""
    memory: str | None = None
    """The container's limit, such as "2g"; past it the kernel's OOM killer ends its processes."""
    sbatch: tuple[str, ...] = ()
    """For launcher = "slurm": options of the user's site, as "--partition=gpu"."""
    queue_s: float = 900.0
    """For launcher = "slurm": how long the job may wait in the queue."""
    kubernetes: Kubernetes = msgspec.field(default_factory=Kubernetes)
    """For launcher = "kubernetes"."""
    container: Container = msgspec.field(default_factory=Container)
    """For launcher = "container"."""

    @property
    def image(self) -> str:
        """The user's image that the ranks run in; "" where they have this host's programs."""
        return (self.container.image or "") if self.launcher is LauncherName.CONTAINER else ""

    @property
    def contained(self) -> bool:
        """Whether the ranks run in a container: other files, other pids."""
        return self.launcher in CONTAINED

    @property
    def rendezvous(self) -> Literal["static", "c10d"]:
        """What torchrun on several hosts is told."""
        return self.rdzv_backend or ("c10d" if self.max_restarts else "static")

    @property
    def on_nodes(self) -> bool:
        """Whether each host has a process of hangdrill's own (hangdrill.node), which starts that host's ranks."""
        return self.launcher is LauncherName.SLURM or (self.launcher is LauncherName.TORCHRUN and self.nnodes > 1)

    def volume_of(self, path: str) -> Volume | None:
        """The volume that a path, as the job names it, lies on; one that is not well written holds nothing."""
        holding = [
            volume for volume in map(_parse, self.volumes) if volume and f"{path}/".startswith(f"{volume.target}/")
        ]
        return max(holding, key=lambda volume: len(volume.target), default=None)

    def is_on_a_volume(self, path: str) -> bool:
        """Whether a path outlives the job's container, if it is no part of the run directory."""
        volume = self.volume_of(path)
        return volume is not None and not volume.in_memory

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.nnodes * self.nproc_per_node


class Before(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Before the nth (from 1) operation `op` in a group. group: a name, a description, or its global ranks;
    op None means any operation, so nth counts all operations of the group."""

    group: str | tuple[int, ...] = "default_pg"
    op: str | None = None
    nth: int = 1


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is done, to whom, where. `at` is "init", "step:N" (from 1), "destroy" or "dataloader"."""

    kind: FaultKind = FaultKind.NONE
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    before: Before | None = None
    at: str | None = None
    delay_s: float | None = None
    """For `slow`: how long the rank is held; default 0.3 x job.timeout_s."""
    node: int | None = None
    """For a fault of a host: its number, from 0."""
    interface: str | None = None
    """For a fault of a host's link: the network interface that is cut, for whatever else uses it too."""

    @property
    def on_host(self) -> bool:
        """Whether it is placed on a host, and not on ranks."""
        return self.kind in HOST_FAULTS

    @property
    def host_node(self) -> int:
        """The node of a fault of a host; the store lives on node 0."""
        return 0 if self.node is None else self.node

    @property
    def targets(self) -> tuple[int, ...]:
        """The global ranks the fault is placed on, sorted."""
        return tuple(sorted({*self.ranks, *(() if self.rank is None else (self.rank,))}))


class Recorder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How evidence is recorded and pulled. dump_to: directory of native dumps, default inside the run directory."""

    trigger: Trigger = Trigger.COLLECTOR
    buffer_size: int = 2000
    dump_to: str | None = None
    debug_server_interval_s: float = 2.0
    deliver_to: str | None = None
    """A URL that fsspec knows, or a directory of this host."""
    deliver_within_s: float = 30.0
    """For what is left to deliver once the collector has finished."""
    keep_days: float | None = None
    """The promise: what is kept stays so long."""


class Incident(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is told of a hang, once. webhook: a URL, or "$NAME" for what the environment has under that name."""

    command: tuple[str, ...] = ()
    webhook: str | None = None
    timeout_s: float = 10.0

    @property
    def has_hook(self) -> bool:
        """Whether anybody is to be told."""
        return bool(self.command) or self.webhook is not None


class Expect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must come of it. culprit(s): what the diagnosis must name; () means nobody and no hang."""

    dumps: Literal["all", "none"] | tuple[int, ...] = "all"
    culprit: int | None = None
    culprits: tuple[int, ...] | None = None
    kind: HangKind | None = None
    within_s: float | None = None
    """From the fault being confirmed to the last dump; default 3 x job.timeout_s + 10."""
    survives: tuple[Teardown, ...] = (Teardown.JOB_EXIT,)

    @property
    def expected_culprits(self) -> tuple[int, ...] | None:
        """Sorted global ranks; () for no hang; None when the scenario says nothing of it."""
        if self.culprits is not None:
            return tuple(sorted(self.culprits))
        return None if self.culprit is None else (self.culprit,)


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One scenario, complete and valid by itself."""

    title: str
    job: Job
    fault: Fault = msgspec.field(default_factory=Fault)
    recorder: Recorder = msgspec.field(default_factory=Recorder)
    incident: Incident = msgspec.field(default_factory=Incident)
    expect: Expect = msgspec.field(default_factory=Expect)
