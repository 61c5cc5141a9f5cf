"""One save or restore job on a stack: its command, its environment, and its end, whatever it does.

Everything that the job started is ended before this module returns, also when it is interrupted.
"""

import os
import re
import secrets
import shlex
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from hangdrill.certify.places import HERE, Place, Start, start_at
from hangdrill.drill.procfs import CONTROLLER_VARIABLE, RUN_ID_VARIABLE, own_id
from hangdrill.drill.supervise import Grace, Supervisor
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.launchers.protocol import LaunchedJob, LaunchRequest
from hangdrill.launchers.torchrun import TorchrunLauncher
from hangdrill.model.errors import UsageError

__all__ = [
    "ENDING",
    "Action",
    "Job",
    "JobEnd",
    "built_in_command",
    "environ_of",
    "last_error",
    "run_job",
    "script_command",
    "tail_of",
]

Action = Literal["save", "restore", "read"]
ENDING = Grace(int_s=0, term_s=3.0, kill_s=10.0)
TAIL_BYTES = 4096
LOG_DIR_VARIABLE = "PET_LOG_DIR"
"""torchrun's --log-dir, also for a torchrun that a user's command line starts: without it each leaves a directory in
/tmp."""
_SIGNAL = re.compile(r"exitcode\s*:\s*-(\d+)")
"""How torchrun says that a rank died of a signal."""
_OF_OUTER_JOBS = ("TORCHELASTIC_", "PET_", "HANGDRILL_")
_OF_RANKS = {
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
}  # fmt: skip


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. environ: the stack's, whole. agent_path: directory that holds `hangdrill.rank` and nothing else.

    python: the stack's; its directory comes first on PATH, so that `torchrun` in a user's command line is the stack's.
    deadline_s: of the whole job, its start included.
    """

    command: tuple[str, ...]
    python: str
    environ: dict[str, str]
    agent_path: Path
    cwd: Path
    log: Path
    deadline_s: float
    extra: dict[str, str] = msgspec.field(default_factory=dict)
    place: Place = HERE
    sees: tuple[Path, ...] = ()
    """In an image: what else the job reads there; `writes`: what else it writes. It has the log's directory."""
    writes: tuple[Path, ...] = ()


class JobEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended. exit_code: None when it was not over in time; negative when the launcher died of a signal.

    rank_signal: the signal that a rank died of, as torchrun tells it.
    """

    exit_code: int | None
    took_s: float
    rank_signal: int | None = None
    last_line: str = ""

    @property
    def is_in_time(self) -> bool:
        """Whether the job ended by itself."""
        return self.exit_code is not None


def built_in_command(
    python: str,
    action: Action,
    checkpoints: Mapping[str, Path],
    *,
    notes: Path,
    ranks: int,
    backend: str,
    limit_s: float,
) -> tuple[str, ...]:
    """torchrun with the program `hangdrill.rank.checkpoint`. checkpoints: by the name that the program takes."""
    words = [f"{name}={directory}" for name, directory in checkpoints.items()]
    options = ("--notes", str(notes), "--backend", backend, "--limit-s", f"{limit_s:g}")
    request = LaunchRequest(
        run_id=f"checkpoint-{secrets.token_hex(4)}",
        python=python,
        nnodes=1,
        nproc_per_node=ranks,
        max_restarts=0,
        target="-m",
        args=("hangdrill.rank.checkpoint", action, *words, *options),
        environ={},
        cwd="",
        log_path="",
    )
    return TorchrunLauncher().command(request)


def script_command(template: str, *, key: str, python: str, checkpoint: Path) -> tuple[str, ...]:
    """The user's command line: split as a shell splits words, then filled in. Raises UsageError for a strange one."""
    try:
        words = shlex.split(template)
        command = tuple(word.format(python=python, checkpoint=checkpoint) for word in words)
    except (ValueError, LookupError, AttributeError, TypeError) as error:  # as {checkpoint.x}, {checkpoint[0]} have it
        raise UsageError(
            f"not a command line: {error}",
            where=f"checkpoint.{key}",
            next_step="use {python} and {checkpoint}, and write {{ and }} for braces",
        ) from error
    if not command or not any("{checkpoint}" in word for word in words):
        raise UsageError(
            "the command line does not say where {checkpoint} goes",
            where=f"checkpoint.{key}",
            next_step='for example: "torchrun --nproc-per-node 2 train.py --save {checkpoint}"',
        )
    return command


def run_job(job: Job, interrupt: Interrupt) -> JobEnd:
    """Run it to its end or its deadline. Raises MachineError when it cannot start or be ended, Interrupted."""
    run_id = f"checkpoint-{secrets.token_hex(6)}"
    supervisor = Supervisor(run_id, own_id())
    began_s = time.monotonic()
    start = Start(
        run_id=run_id,
        command=job.command,
        environ=environ_of(job, run_id),
        named=job.environ,
        cwd=job.cwd,
        log=job.log,
        sees=(job.agent_path, *job.sees),
        writes=job.writes,
    )
    started: LaunchedJob | None = None
    exit_code, took_s = None, 0.0
    try:
        started = start_at(job.place, start)
        supervisor.adopt(started.pids())
        exit_code = Waiter(interrupt).until(started.poll, deadline_s=job.deadline_s)
        took_s = time.monotonic() - began_s  # what it left behind, and how that is ended, is no part of it
    finally:
        ended = supervisor.end(ENDING)  # by its marks also what an engine started that then fell silent
        try:
            if started is not None:
                _put_away(started)
        finally:
            shutil.rmtree(_torchrun_logs(job), ignore_errors=True)
    ended.require_none_left(f"the job of {job.log}")
    text = tail_of(job.log)
    killed = _SIGNAL.search(text)
    return JobEnd(
        exit_code=exit_code,
        took_s=took_s,
        rank_signal=int(killed.group(1)) if killed is not None else None,
        last_line=last_error(text),
    )


def _put_away(started: LaunchedJob) -> None:
    """Reap it; a container is removed. Raises MachineError when its engine does not answer any more."""
    try:
        Waiter().until(started.poll, deadline_s=ENDING.kill_s)
        started.remove()
    finally:
        started.close()


def tail_of(log: Path) -> str:
    """The end of a log; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def last_error(text: str) -> str:
    """The last line that looks like a Python error, before torchrun's own, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(\[rank\d+\]:? ?)?[\w.]*(Error|Exception)\b", line)]
    own = [line for line in errors if "ChildFailedError" not in line]
    return (own or errors or lines or [""])[-1][:300]


def environ_of(job: Job, run_id: str) -> dict[str, str]:
    """The job's environment, with the marks by which its processes are found."""
    inherited = {
        name: value
        for name, value in job.environ.items()
        if name not in _OF_RANKS and not name.startswith(_OF_OUTER_JOBS)
    }
    python_path = os.pathsep.join(part for part in (str(job.agent_path), inherited.get("PYTHONPATH", "")) if part)
    path = os.pathsep.join(part for part in (_programs_of(job), inherited.get("PATH", "")) if part)
    return {
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONUNBUFFERED": "1",
        **inherited,
        LOG_DIR_VARIABLE: str(_torchrun_logs(job)),
        **job.extra,
        "PATH": path,
        "PYTHONPATH": python_path,
        RUN_ID_VARIABLE: run_id,
        CONTROLLER_VARIABLE: "{}:{}".format(*own_id()),
    }


def _torchrun_logs(job: Job) -> Path:
    """What torchrun keeps for itself while the job runs; removed after it."""
    return job.log.with_name(f"{job.log.name}.torchrun")


def _programs_of(job: Job) -> str:
    return str(Path(job.python).parent) if Path(job.python).is_absolute() else ""
