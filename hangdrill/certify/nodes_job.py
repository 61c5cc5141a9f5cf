"""One command on several nodes: started on each, ended on each, whatever it does.

On this host everything is the supervisor's, as in every job. On the other nodes it is ended by the lease: a file in the
job's directory that this module rewrites while the job runs, and which says so when it is to end. What was started
there ends by itself when the file stays as it is (`hangdrill.rank.canary.lease`), also when this process was killed.
"""

import contextlib
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hangdrill.certify.checkpoint_jobs import ENDING, Job, JobEnd, environ_of, last_error, tail_of
from hangdrill.certify.nodes import NodeCommand, node_commands, on_node_words, travelling
from hangdrill.drill.procfs import own_id
from hangdrill.drill.supervise import Supervisor
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.launchers.process import LocalJob, start_local
from hangdrill.model.certify_plan import NodesPlan

__all__ = ["FACTS_WORD", "LEASE_S", "UNSHARED", "LeaseFile", "NodesJob", "log_of", "reason_of", "run_on_nodes"]

LEASE_S = 30.0
"""As in the ranks: so long after the controller's end, at most, the nodes begin to end the job."""
BEAT_S = 1.0
SETTLE_S = 15.0
"""So long the others may take to end after the first one failed: their last words may say more."""
AWAY_S = 25.0
"""So long a node may take to end its part: TERM 3 s, KILL 10 s, and the way there and back."""
GLOO = "GLOO_SOCKET_IFNAME"
FACTS_WORD, OWN_WORD = "hangdrill-node: ", "hangdrill: "
"""As `hangdrill.rank.canary.on_node` begins its lines."""
ON_PURPOSE = ("the controller ended the job", "ended by SIGTERM", "ended by SIGINT")
LOST_DIRECTORY = "cannot change directory"
"""As env says it of a directory that is not there."""
UNCONNECTED = "RendezvousConnectionError"
UNREACHED = "Is the port of nodes.endpoint open between the nodes?"
UNSHARED = "OUT must lie on a file system that all nodes share"


class NodesJob(msgspec.Struct, frozen=True, kw_only=True):
    """command: of one node, as `hangdrill.rank.canary.on_node` fills it in; () only asks each node what it is.

    environ: the stack's, whole. named: the variables that the plan sets. agent_path: as the nodes see it.
    """

    nodes: NodesPlan
    command: tuple[str, ...]
    python: str
    environ: dict[str, str]
    named: tuple[str, ...]
    agent_path: Path
    directory: Path
    deadline_s: float
    lease_s: float = LEASE_S


class LeaseFile:
    """The controller's side: the file is rewritten in place, since a new one is seen late over a network."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = 0
        self._next_s = 0.0

    def beat(self) -> None:
        """Change it, at most once in BEAT_S. A disk that refuses lets the job end, and that is said there."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + BEAT_S
            self._number += 1
            self._write(f"beat {self._number:012d}\n")

    def end(self) -> None:
        """Everything on every node is to end now."""
        self._write("end                \n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError), self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.write(text.encode())


class _Part(msgspec.Struct, frozen=True):
    """What was started for one node."""

    command: NodeCommand
    job: LocalJob
    log: Path


def log_of(directory: Path, number: int) -> Path:
    """The output of a node; the first one's is called as that of a job on one host."""
    return directory / ("job.log" if number == 0 else f"job.{number}.log")


def run_on_nodes(job: NodesJob, interrupt: Interrupt) -> JobEnd:
    """Run it to its end or its deadline. Raises MachineError when this host cannot start or end it, Interrupted."""
    run_id = f"nodes-{secrets.token_hex(6)}"
    supervisor = Supervisor(run_id, own_id())
    lease = LeaseFile(job.directory / f"lease.{run_id}")  # a new one: an earlier job must not take it for its own
    lease.beat()
    environ = _environ(job, run_id)
    began_s = time.monotonic()
    parts: list[_Part] = []
    failed: _Part | None = None
    is_over = False
    try:
        for number, command in enumerate(node_commands(job.nodes, _words(job, environ, lease.path))):
            log = log_of(job.directory, number)
            started = start_local(command.words, environ=environ, cwd=str(job.directory), log_path=str(log))
            supervisor.adopt(started.pids())
            parts.append(_Part(command, started, log))
        waiter = Waiter(interrupt, tick=lease.beat)
        is_over = waiter.until(lambda: _over(parts), deadline_s=job.deadline_s) is not None
        failed = next((part for part in parts if part.job.poll()), None)
        if failed is not None:
            waiter.until(lambda: _all_over(parts), deadline_s=SETTLE_S)
    finally:
        lease.end()
        returned = Waiter().until(lambda: _all_over(parts), deadline_s=AWAY_S)
        away = () if returned else tuple(part.command.name for part in parts if part.job.poll() is None)
        ended = supervisor.end(ENDING)
        Waiter().until(lambda: _all_over(parts), deadline_s=ENDING.kill_s)  # reap them
        for part in parts:
            part.job.close()
        shutil.rmtree(_torchrun_logs(job), ignore_errors=True)
    ended.require_none_left("a job over nodes")
    return JobEnd(
        exit_code=(0 if failed is None else failed.job.poll()) if is_over else None,
        took_s=time.monotonic() - began_s,
        last_line=_reason(parts, failed, away),
    )


def _words(job: NodesJob, environ: Mapping[str, str], lease: Path) -> tuple[str, ...]:
    variables = travelling(environ, job.named)
    return on_node_words(
        job.nodes,
        python=job.python,
        variables=variables,
        directory=job.directory,
        lease=lease,
        lease_s=job.lease_s,
        command=job.command,
    )


def _environ(job: NodesJob, run_id: str) -> dict[str, str]:
    """As of a job on one host, but for the interface: the loopback reaches no other node."""
    local = Job(
        command=job.command,
        python=job.python,
        environ=job.environ,
        agent_path=job.agent_path,
        cwd=job.directory,
        log=log_of(job.directory, 0),
        deadline_s=job.deadline_s,
    )
    environ = environ_of(local, run_id)
    if GLOO not in job.environ:
        environ.pop(GLOO, None)
    if job.nodes.interface:
        environ |= {GLOO: job.nodes.interface, "NCCL_SOCKET_IFNAME": job.nodes.interface}
    return environ


def _torchrun_logs(job: NodesJob) -> Path:
    return job.directory / "job.log.torchrun"


def _over(parts: list[_Part]) -> bool | None:
    """All have ended, or one has failed: then the others only wait for it."""
    codes = [part.job.poll() for part in parts]
    return True if all(code is not None for code in codes) or any(codes) else None


def _all_over(parts: list[_Part]) -> bool | None:
    return True if all(part.job.poll() is not None for part in parts) else None


def _reason(parts: list[_Part], failed: _Part | None, away: tuple[str, ...]) -> str:
    """In the words of the node that failed first, else of the first one that says anything."""
    told = failed or (parts[0] if parts else None)
    if told is None:
        return ""
    line = reason_of(tail_of(told.log))
    line = f"{told.command.name}: {line}" if failed is not None and line else line
    if away:
        line = f"{line} ({', '.join(away)} did not end in time: what runs there ends by itself within {LEASE_S:g} s)"
    return line.strip()


def reason_of(text: str) -> str:
    """Why a node's part failed, from the end of its output: what it said of itself, else the last error, else the last
    line; what srun says of the exit codes of others is no reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lost = next((line for line in lines if LOST_DIRECTORY in line), "")
    if lost:
        return f"{lost}: {UNSHARED}"
    own = [line for line in lines if line.startswith(OWN_WORD) and not line.endswith(ON_PURPOSE)]
    if own:
        return own[0].removeprefix(OWN_WORD)
    others = [line for line in lines if not line.startswith(("srun: ", OWN_WORD, FACTS_WORD))]
    line = last_error("\n".join(others or lines))
    return f"{line} {UNREACHED}" if UNCONNECTED in line else line
