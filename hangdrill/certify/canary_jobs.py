"""One canary job on a stack: started, ended whatever it does, and read back."""

import contextlib
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hangdrill.certify.canary_records import CanaryRun, read_run
from hangdrill.certify.checkpoint_jobs import Job, JobEnd, run_job
from hangdrill.certify.places import HERE, Place
from hangdrill.drill.waiting import Interrupt
from hangdrill.launchers.agent_path import prepare_agent_path
from hangdrill.launchers.protocol import LaunchRequest
from hangdrill.launchers.torchrun import TorchrunLauncher

__all__ = ["SHARED_STORE", "CanaryJob", "canary_words", "read_back", "run_canary"]

SHARED_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Set to 1 unless somebody says otherwise: else a job that torchrun restarts may find the addresses of its dead ranks
in the store that outlived them, and fail to start (pytorch 135712; seen in 4 of 6 restarts with gloo on 2.15)."""
BULKY = ("checkpoint", "recovery")
MEETINGS = "meetings.*"


class CanaryJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure. environ: the stack's, whole; variables: over it. parts, options: of hangdrill.rank.canary."""

    python: str
    environ: Mapping[str, str]
    directory: Path
    backend: str
    ranks: int
    parts: Sequence[str] = ()
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = msgspec.field(default_factory=dict)
    max_restarts: int = 0
    limit_s: float = 120.0
    deadline_s: float = 300.0
    place: Place = HERE
    writes: tuple[Path, ...] = ()
    """What it needs beside its directory."""


def run_canary(job: CanaryJob, interrupt: Interrupt) -> CanaryRun:
    """Run it to its end or its deadline. Raises MachineError when it cannot start, Interrupted."""
    job.directory.mkdir(parents=True)
    agent_path = prepare_agent_path(job.directory / "agent")
    launched_ns = time.time_ns()
    end = run_job(
        Job(
            command=_command(job),
            python=job.python,
            environ={SHARED_STORE: "1", **job.environ, **job.variables},
            agent_path=agent_path,
            cwd=job.directory,
            log=job.directory / "job.log",
            deadline_s=job.deadline_s,
            place=job.place,
            writes=job.writes,
        ),
        interrupt,
    )
    return read_back(job, end, launched_ns)


def read_back(job: CanaryJob, end: JobEnd, launched_ns: int) -> CanaryRun:
    """What its ranks left, and what is no evidence removed."""
    records, unreadable = read_run(job.directory, world_size=job.ranks)
    _tidy(job.directory)
    return CanaryRun(
        world_size=job.ranks,
        ranks=records,
        unreadable=unreadable,
        exit_code=end.exit_code,
        launched_ns=launched_ns,
        ended_ns=launched_ns + round(end.took_s * 1e9),
        wall_s=end.took_s,
        last_line=end.last_line,
    )


def _command(job: CanaryJob) -> tuple[str, ...]:
    request = LaunchRequest(
        run_id=f"canary-{secrets.token_hex(4)}",
        python=job.python,
        nnodes=1,
        nproc_per_node=job.ranks,
        max_restarts=job.max_restarts,
        target="-m",
        args=canary_words(job),
        environ={},
        cwd="",
        log_path="",
    )
    return TorchrunLauncher().command(request)


def canary_words(job: CanaryJob) -> tuple[str, ...]:
    """The ranks' program and its options, after `-m`."""
    words = ("--out", str(job.directory), "--backend", job.backend, "--parts", ",".join(job.parts))
    return ("hangdrill.rank.canary", *words, "--limit-s", f"{job.limit_s:g}", *job.options)


def _tidy(directory: Path) -> None:
    """Checkpoints were measured, and are no evidence; hundreds of megabytes a run on GPUs."""
    for name in (*BULKY, "agent", *(path.name for path in directory.glob(MEETINGS))):
        shutil.rmtree(directory / name, ignore_errors=True)
    for stacks in directory.glob("*.stacks"):
        with contextlib.suppress(OSError):
            if stacks.stat().st_size == 0:
                stacks.unlink()
