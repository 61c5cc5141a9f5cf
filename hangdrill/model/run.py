"""A recorded drill: everything the checks may look at, read back from the run directory and nowhere else.

`hangdrill.drill.store` makes a RecordedRun from the files; `hangdrill.checks` judges it.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal

import msgspec

from hangdrill.model.delivery import Delivered, HookCalls
from hangdrill.model.diagnosis import Diagnosis
from hangdrill.model.dump import Frame, RankDump
from hangdrill.model.scenario import Scenario
from hangdrill.model.verdict import Verdict

__all__ = [
    "AgentFacts",
    "Artifact",
    "ArtifactKind",
    "CheckResult",
    "DrillResult",
    "Environment",
    "FaultReport",
    "FileFacts",
    "GroupCount",
    "JournalEvent",
    "Leftover",
    "Manifest",
    "MemoryFacts",
    "PlaceFacts",
    "PullReason",
    "RankClock",
    "RankExit",
    "RankPull",
    "RankState",
    "RecordedRun",
    "ResultArtifact",
    "Timings",
]


class ArtifactKind(Enum):
    """What sort of evidence a file is."""

    DUMP = "dump"
    """Full history of the recorder (pickle), pulled or native."""
    TRACE = "trace"
    """Active operations only (JSON of the control plane): where a rank stands, not what it did before."""
    STACKS = "stacks"
    PROCESS = "process"
    LOG = "log"


class RankState(Enum):
    """The state of a rank's process as seen from outside."""

    RUNNING = "running"
    STOPPED = "stopped"
    EXITED = "exited"
    GONE = "gone"
    """No such process any more, and the agent did not announce an exit: killed or crashed."""
    NEVER_SEEN = "never-seen"


class PullReason(Enum):
    """Why the collector pulled from a rank."""

    STALL = "stall"
    EXCEPTION = "exception"
    SIGNAL = "signal"
    GONE = "gone"
    ASKED = "asked"
    EXIT = "exit"
    """An orderly exit with status 0: proof of health, not of a hang."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """One file of evidence. path is relative to the evidence directory; sha256 as the writer computed it."""

    rank: int
    attempt: int = 0
    kind: ArtifactKind
    road: str
    """native | debug-server | handler (Python, full) | fr_trace_json | fr_dump_file | dump_nccl_trace_json | py-spy |
    dump_traceback | proc"""
    path: str
    bytes: int
    sha256: str
    pulled_ns: int
    reason: PullReason


LONGEST_MESSAGE = 200


class RankExit(msgspec.Struct, frozen=True, kw_only=True):
    """How a rank's program ended, as its own agent announced it before it let go of the process."""

    rank: int
    attempt: int = 0
    status: Literal["exit", "exception", "signal"]
    code: int = 0
    exception_type: str = ""
    exception_message: str = ""
    in_distributed: bool = False
    """The exception came out of torch.distributed, so the last operation of this rank did not finish."""
    last_group: str = ""
    last_sequence: int = 0
    last_p2p: bool = False
    """The last operation was a send or receive, so last_sequence is not a collective's."""
    frames: tuple[Frame, ...] = ()
    time_ns: int

    @property
    def complaint(self) -> str:
        """ "KeyError: 'x'", the first line of the exception; empty when there was none."""
        if self.status != "exception":
            return ""
        message = self.exception_message.partition("\n")[0][:LONGEST_MESSAGE]
        return f"{self.exception_type or 'an exception'}{f': {message}' if message else ''}"


class GroupCount(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's own record of one group, counted by the agent's hook: the truth the dump is checked against."""

    name: str
    desc: str
    ranks: tuple[int, ...]
    backend_class: str = ""
    collectives: int = 0
    p2p: int = 0
    last_operation_ns: int = 0
    """When the rank entered the last of them (word 3 of the slot in `ops`), 0 when never or not known. With it a check
    can tell operations that came after the evidence was pulled from operations that the dump lost."""


class RankPull(msgspec.Struct, frozen=True, kw_only=True):
    """What the collector saw of one rank."""

    rank: int
    attempt: int = 0
    pid: int | None = None
    state: RankState = RankState.NEVER_SEEN
    answered: bool = False
    exit: RankExit | None = None
    last_trace_ns: int | None = None
    notes: tuple[str, ...] = ()
    counts: tuple[GroupCount, ...] = ()
    """The agent's own counts at the end of the pull: readable also of a rank that is stopped, holds its GIL or is dead.
    Empty without an agent, and under placement "wrapped", which misses what C++ starts."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`evidence/manifest.json`: written by the collector, atomically, after every pull."""

    schema: Literal["hangdrill.manifest/1"] = "hangdrill.manifest/1"
    run_id: str = ""
    world_size: int | None = None
    noticed_ns: int | None = None
    notice: str = ""
    """Why the hang was noticed, in a sentence: "all_reduce #4 of default_pg pending for 4.0 s on ranks 0, 2, 3"."""
    complete: bool = False
    ranks: tuple[RankPull, ...] = ()
    artifacts: tuple[Artifact, ...] = ()


class AgentFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank's agent reported of itself and counted until it ended (`control/` of the run directory)."""

    rank: int
    attempt: int = 0
    pid: int
    host: str = ""
    python: str = ""
    torch: str = ""
    torch_git: str = ""
    cuda: str | None = None
    nccl_loaded: str | None = None
    backend_requested: str = ""
    backend_class: str = ""
    device_binding: str = "cpu"
    placement: Literal["pre-hook", "wrapped"] = "pre-hook"
    steps: int = 0
    groups: tuple[GroupCount, ...] = ()
    started_ns: int = 0
    """As every time of a rank, by the rank's own clock, which may differ from the controller's: see RankClock."""
    written_ns: int = 0
    """When this was written, by the same clock."""


class FaultReport(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's own report that a fault took, written before the rank blocked, died or went on."""

    rank: int
    attempt: int = 0
    kind: str
    time_ns: int
    group: str = ""
    op: str = ""
    sequence: int = 0
    frames: tuple[Frame, ...] = ()


class JournalEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `journal.jsonl`. elapsed_s is monotonic since the controller started the drill."""

    name: str
    elapsed_s: float
    time_ns: int
    detail: dict[str, Any] = msgspec.field(default_factory=dict)


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A file as `stat` saw it at one inspection. `when` names the inspection: "collected" or a teardown's name."""

    when: str
    rank: int
    attempt: int = 0
    kind: ArtifactKind
    path: str
    """Absolute."""
    exists: bool
    bytes: int = 0
    uid: int = -1
    mode: int = 0
    mtime_ns: int = 0
    sha256: str = ""
    unseen: str = ""
    """Why nobody could look, where that is so: then `exists` says nothing."""
    place: str = ""
    """What holds the file, if that goes with the job: "... is in <this>"."""


class PlaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The directory of native dumps at one inspection ("running", "collected"), as the job sees it: through the root of
    one of its processes while one lives, else where this host finds it. None: could not be seen, never "no"."""

    when: str
    path: str
    """As the job names it."""
    exists: bool | None = None
    is_directory: bool | None = None
    writable: bool | None = None
    """By the job's user; None when only this host's view was to be had."""
    read_only: bool | None = None
    """The mount, whatever the rights of the directory are."""
    file_system: str = ""
    mount_point: str = ""
    free_bytes: int | None = None
    total_bytes: int | None = None
    names: tuple[str, ...] = ()
    """Files there that bear the prefix, the first of them."""


class RankClock(msgspec.Struct, frozen=True, kw_only=True):
    """By how much a rank's clock was ahead of the controller's: its own time in its facts file, against the file's."""

    rank: int
    attempt: int = 0
    ahead_ns: int


class MemoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a container at its memory limit: an oom-kill is proven by the kernel's count, or the engine."""

    limit_bytes: int | None = None
    kills: int | None = None
    """By the OOM killer, as the kernel counted them for the container; None when that could not be read."""
    kills_of_job: int = 0
    """Those of them that processes of the job below torchrun fell to: ranks."""
    oom_killed: bool | None = None
    """The engine's flag."""
    exit_code: int | None = None
    container_over: bool = False


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """Something of the drill that was still there after the teardown."""

    what: Literal["process", "socket", "mount", "container", "lock", "file", "job"]
    name: str


class NodeFault(msgspec.Struct, frozen=True, kw_only=True):
    """What a node's process did to its host, by its own report: a fault that no rank can report."""

    kind: str
    interface: str = ""
    what: str = ""
    """In words, as "eth0 is down"."""
    time_ns: int
    """By the node's clock."""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`nodes/<k>.json`: how one host of a job on several stands, rewritten by its node process about once a second."""

    schema: Literal["hangdrill.node/1"] = "hangdrill.node/1"
    node: int
    host: str = ""
    pid: int = 0
    beat: int = 0
    """Grows as long as the process lives. Who waits for it compares changes, never clocks."""
    state: Literal["waiting", "running", "ending", "finished"] = "waiting"
    address: str = ""
    endpoint: str = ""
    """HOST:PORT at which the nodes meet; node 0 tells it."""
    ranks: tuple[int, ...] = ()
    """The global ranks that ran here."""
    living: tuple[int, ...] = ()
    """Those of them whose process is there."""
    torchrun: int | None = None
    """Its exit code, None while it runs; negative: ended by that signal."""
    collector: int | None = None
    fault: NodeFault | None = None
    problem: str = ""
    """Why this node's part ended early, or failed."""
    leftovers: tuple[Leftover, ...] | None = None
    """What was left on the host at the end; None when nobody looked yet."""


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A drill as the run directory tells it. Mappings are keyed by global rank, of the last attempt."""

    scenario_name: str
    scenario: Scenario
    run_id: str
    uid: int
    started_ns: int
    ended_ns: int
    dump_prefix: str
    """Absolute prefix of native dumps: rank r's is this plus r."""
    evidence_dir: str
    run_dir: str
    journal: tuple[JournalEvent, ...]
    agents: Mapping[int, AgentFacts]
    earlier_agents: tuple[AgentFacts, ...] = ()
    """Of attempts before the last (torchrun --max-restarts)."""
    faults: tuple[FaultReport, ...] = ()
    manifest: Manifest | None = None
    artifacts: tuple[Artifact, ...] = ()
    """Of every road, those of the collector and those copied from native files; all attempts."""
    files: tuple[FileFacts, ...] = ()
    dumps: Mapping[int, tuple[RankDump, ...]] = msgspec.field(default_factory=dict)
    """Every dump that parsed, by rank; the richest first. Native files and pulled ones stand side by side."""
    unreadable: Mapping[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    stacks: Mapping[int, tuple[Frame, ...]] = msgspec.field(default_factory=dict)
    """Where each rank's main thread stood when its stacks were taken, innermost frame first: to show, not to judge."""
    diagnosis: Diagnosis | None = None
    job_exit_code: int | None = None
    leftovers: tuple[Leftover, ...] | None = None
    """None when nobody looked."""
    delivered: Delivered | None = None
    """What the controller found of deliveries and of what deletes them; None when nothing was to be delivered."""
    hook_calls: HookCalls | None = None
    """None when no call of a hook was recorded."""
    places: tuple[PlaceFacts, ...] = ()
    clocks: tuple[RankClock, ...] = ()
    nodes: tuple[NodeStatus, ...] = ()
    """The last word of each host of a job on several; one that did not finish was lost."""
    memory: MemoryFacts | None = None
    """Of the teardown oom-kill."""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """One check's answer. ranks is keyed by the rank as text, empty when the check is about the whole drill."""

    name: str
    verdict: Verdict
    ranks: dict[str, Verdict] = msgspec.field(default_factory=dict)
    detail: str = ""
    mend: str = ""


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds since the drill began, None for what did not happen."""

    launched_s: float | None = None
    hang_s: float | None = None
    noticed_s: float | None = None
    last_dump_s: float | None = None
    ended_s: float | None = None
    total_s: float | None = None


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What really ran, from the agents' reports (rank 0, with differing ranks named in `differs`)."""

    python: str | None = None
    torch: str | None = None
    torch_git: str | None = None
    cuda: str | None = None
    nccl_loaded: str | None = None
    backend_requested: str | None = None
    backend_class: str | None = None
    device_binding: str | None = None
    placement: str | None = None
    differs: tuple[str, ...] = ()


class ResultArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact as `result.json` lists it; path is relative to the run directory when it lies inside."""

    rank: int
    kind: ArtifactKind
    path: str
    bytes: int
    sha256: str
    road: str = ""


class DrillResult(msgspec.Struct, frozen=True, kw_only=True):
    """The contract `hangdrill.result/1`."""

    schema: Literal["hangdrill.result/1"] = "hangdrill.result/1"
    scenario: str
    verdict: Verdict
    checks: tuple[CheckResult, ...]
    diagnosis: Diagnosis | None
    expected_culprits: tuple[int, ...] | None
    timings: Timings
    environment: Environment
    artifacts: tuple[ResultArtifact, ...]
    sentence: str = ""
    """The diagnosis in one sentence, as the terminal prints it."""
    run_id: str = ""
