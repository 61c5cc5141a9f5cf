"""Everything the rules may look at, as one frozen value. Who gathers it is elsewhere, so that a test plants any fact.

None always means "could not be seen", never "no".
"""

from enum import Enum

import msgspec

from hangdrill.model.delivery import KeptPlace
from hangdrill.model.kubernetes import Kubernetes
from hangdrill.model.scenario import FaultKind, Trigger

__all__ = [
    "Call",
    "DebugServerCall",
    "InitCall",
    "Job",
    "JobKind",
    "Machine",
    "Place",
    "Script",
    "Sockets",
    "Surroundings",
    "Torch",
    "WayOut",
]

Version = tuple[int, ...]


class Torch(msgspec.Struct, frozen=True, kw_only=True):
    """What the ranks' own interpreter says of its torch."""

    version: str
    is_hip: bool = False
    gpus: int | None = None
    nccl: Version | None = None
    """Of the NCCL (RCCL with is_hip) that torch loads; None without one."""
    has_debug_server: bool = True
    missing_for_debug_server: tuple[str, ...] = ()
    reads: dict[str, bool] = msgspec.field(default_factory=dict)
    """Of names that were asked for: whether this torch's own files hold them. It reads no other variable."""
    default_timeout_s: float = 1800.0
    default_nccl_timeout_s: float = 600.0


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """This host, as seen without root."""

    ptrace_scope: int | None = None
    """Of the Yama module, 0 to 3; None when the kernel has no such file, so that any process of the user may trace."""
    can_trace: bool | None = None
    """CAP_SYS_PTRACE is in the effective set of this process."""
    py_spy: str | None = None
    """Where the collector would find it: beside the interpreter of hangdrill, else on PATH."""
    in_container: bool = False
    in_kubernetes: bool = False
    in_slurm: bool = False
    clock_synchronised: bool | None = None
    memory_limit_bytes: int | None = None
    """Of this process's cgroup; None: no limit, or none that could be read."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where native dumps go: `prefix` + rank, in `directory`. Nothing was written to find this out."""

    prefix: str
    directory: str
    chosen_by: str
    """The variable, option or scenario key that says so, or "torch's default"."""
    made_by_hangdrill: bool = False
    """hangdrill makes the directory; the other facts are of its nearest parent that exists."""
    exists: bool = True
    is_directory: bool = True
    writable: bool | None = True
    file_system: str | None = None
    """As the mount table names it: ext4, tmpfs, overlay, nfs4, ..."""
    mount_point: str = ""
    free_bytes: int | None = None
    others_can_read: bool | None = False
    old_files: int = 0
    """Files there that already bear the prefix."""
    names_a_directory: bool = False
    """The prefix itself is an existing directory, so files land beside it."""
    in_empty_dir: bool = False
    """Of a pod."""


class InitCall(msgspec.Struct, frozen=True, kw_only=True):
    """One `init_process_group(...)`. backends: the literals it may get, () for torch's own choice, None if dynamic."""

    line: int
    backends: tuple[str, ...] | None = ()
    by_gpu: bool = False
    """The first of two backends is taken where there is a GPU, the second elsewhere."""
    has_device_id: bool | None = False
    timeout_s: float | None = None
    """None without a literal; then timeout_dynamic says whether there is a timeout at all."""
    timeout_dynamic: bool = False


class DebugServerCall(msgspec.Struct, frozen=True, kw_only=True):
    """One `start_debug_server(...)`. interval_s None: not a literal."""

    line: int
    guarded: bool
    interval_s: float | None = 60.0
    has_dump_dir: bool | None = False


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the script, and the device index of it where there is one."""

    line: int
    index: int | None = None


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """What the text of a training script says; it was parsed, never run."""

    path: str
    problem: str = ""
    """Why it could not be looked at; everything else is then empty."""
    inits: tuple[InitCall, ...] = ()
    devices: tuple[Call, ...] = ()
    """Constant GPU indexes: set_device(0), "cuda:1", torch.device("cuda", 0)."""
    data_parallel: tuple[Call, ...] = ()
    class_tests: tuple[Call, ...] = ()
    """isinstance(..., ProcessGroupNCCL)."""
    debug_servers: tuple[DebugServerCall, ...] = ()
    uses_local_rank: bool = False


class WayOut(msgspec.Struct, frozen=True, kw_only=True):
    """Where a scenario delivers, for how long, and whom it tells. problem: why the target cannot be reached."""

    deliver_to: str | None = None
    problem: str = ""
    mend: str = ""
    keep_days: float | None = None
    kept: tuple[KeptPlace, ...] = ()
    hook_missing: str = ""
    """The command that is not there."""
    webhook_unset: str = ""
    """The variable that is not set."""


class Slurm(msgspec.Struct, frozen=True, kw_only=True):
    """What Slurm says of its own configuration. known: it answered."""

    known: bool = False
    private_tmp: bool = False
    """Each job has a /tmp and /dev/shm of its own, which go with it."""
    kill_wait_s: float | None = None
    run_directory: str = ""
    """Where `hangdrill run` would write if --out says nothing."""


class Sockets(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command's ranks are served to the collector, which makes the directory when it starts."""

    directory: str
    exists: bool


class JobKind(Enum):
    """Where the job comes from."""

    NONE = "none"
    SCENARIO = "scenario"
    COMMAND = "command"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The job, as far as its scenario or its command line tells."""

    kind: JobKind = JobKind.NONE
    launcher: str = ""
    """ "torchrun", or "" when none was recognised."""
    problem: str = ""
    """What of the command line could not be understood."""
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    """What the scenario or the command sets on top of the caller's environment."""
    removed: tuple[str, ...] = ()
    backend: str | None = None
    trigger: Trigger = Trigger.NATIVE
    fault: FaultKind = FaultKind.HOLD
    """What the ranks would dump of: a scenario's own fault, else one stalled rank."""
    debug_interval_s: float | None = None
    nnodes: int | None = None
    nproc_per_node: int | None = None
    max_restarts: int | None = None
    shutdown_timeout_s: float | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    """The limit of a scenario's container."""
    script: Script | None = None


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """All facts. environ: what the ranks would get, the job's own variables included.

    grace_s: from the scheduler's TERM to its KILL. kill_after_s: a silent job is ended from outside after this.
    """

    environ: dict[str, str] = msgspec.field(default_factory=dict)
    torch: Torch | None = None
    torch_problem: str = ""
    machine: Machine = Machine()
    place: Place
    job: Job = Job()
    way_out: WayOut = WayOut()
    sockets: Sockets | None = None
    """Of a command whose ranks are to be watched by `hangdrill collect`."""
    pod: Kubernetes | None = None
    """Of a scenario whose job is put into pods."""
    slurm: Slurm | None = None
    """Of a job of Slurm."""
    grace_s: float | None = None
    kill_after_s: float | None = None
