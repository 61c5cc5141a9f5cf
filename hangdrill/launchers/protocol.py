"""What every launcher must offer, and a fake of it, so that a drill's order is tested without torch.

A launcher knows how to start ranks and nothing else: it does not watch them, and it does not end them.
"""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from hangdrill.model.errors import MachineError
from hangdrill.model.run import Leftover
from hangdrill.model.scenario import LauncherName, Teardown, Volume

__all__ = [
    "LaunchRequest",
    "LaunchedJob",
    "Launcher",
    "NoopJob",
    "NoopLauncher",
    "OutOfReach",
    "PlacedJob",
    "QueuedJob",
]


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a launcher may need.

    target: a built-in workload's name or the path of a script, as `hangdrill.rank` takes it; args follow it.
    environ: the complete environment of the job. log_path: where the job's output goes.
    run_dir, dump_dir, volumes: for a launcher whose jobs see other files than this host does; dump_dir is where torch
    writes native dumps, as the job names it.
    """

    run_id: str
    python: str
    nnodes: int
    nproc_per_node: int
    max_restarts: int
    target: str
    args: tuple[str, ...]
    environ: dict[str, str]
    cwd: str
    log_path: str
    run_dir: str = ""
    dump_dir: str = ""
    rendezvous: str = "static"
    """torchrun's --rdzv-backend, for a job on several hosts."""
    volumes: tuple[Volume, ...] = ()
    set_environ: dict[str, str] = {}
    """The part of `environ` that the drill itself sets: all that a job elsewhere needs of it."""
    collector: tuple[str, ...] = ()
    """For a launcher that starts the collector beside the ranks: its command; () where torch is left alone."""
    memory_bytes: int | None = None
    """The limit of a container that has one."""
    image: str = ""
    """The user's image, for a container that has one; `python` is then a path or a word in it."""
    gpus: bool = False
    """Whether a container of an image is given this host's GPUs."""
    log_dir: str = ""
    """Where torchrun keeps what it writes for itself; "" for a directory of its own in /tmp, which it leaves behind."""
    sbatch: tuple[str, ...] = ()
    """For Slurm: options of the user's site."""
    limit_s: float = 3600.0
    """For a scheduler: by when the job is over, whatever happens."""


class LaunchedJob(Protocol):
    """A job that was started."""

    def poll(self) -> int | None:
        """The launcher's exit code, or None while it runs; negative: ended by that signal."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the launcher itself; nothing happens when it is over."""

    def pids(self) -> tuple[int, ...]:
        """The local processes that were started directly; their descendants are the supervisor's to find."""

    def close(self) -> None:
        """Let go of handles and reap what is over. It ends nothing, and is safe to repeat."""

    def remove(self) -> None:
        """Kill and remove the container and all that only it holds. Nothing without one; safe to repeat."""

    def undergo(self, teardown: Teardown) -> None:
        """Do to the job what this launcher's teardown is (container-removal, pod-deletion, scheduler-cancel, ...).

        Nothing for those that the controller does itself: job-exit, process-kill, restart. It returns when it is done,
        and the job may still run afterwards. MachineError when the engine or scheduler refuses.
        """

    def locate(self, path: str) -> Path | None:
        """Where this host finds, at this moment, what the job calls `path`; None when it is out of reach, or gone."""

    def leftovers(self) -> tuple[Leftover, ...]:
        """What is still there of the job beside its processes."""


class OutOfReach(MachineError):
    """Nobody can look for a file of the job, in a sentence: neither there nor gone is proven."""


@runtime_checkable
class QueuedJob(LaunchedJob, Protocol):
    """A job that may wait for its turn before it begins."""

    def waiting(self) -> str:
        """Why it has not begun, in the scheduler's words; "" once it has."""


@runtime_checkable
class PlacedJob(LaunchedJob, Protocol):
    """A job that sees other files than this host, and knows which of them are not there for long.

    Its `locate` raises OutOfReach where nobody can look.
    """

    def place_of(self, path: str) -> str:
        """What holds the job's `path`, if that goes with the job: "... is in <this>"; else ""."""


class Launcher(Protocol):
    """Starts jobs of one kind."""

    def check(self, request: LaunchRequest) -> None:
        """Raise MachineError, with the next step, when this machine cannot start the job. Starts nothing that lasts."""

    def command(self, request: LaunchRequest) -> tuple[str, ...]:
        """The exact command; pure."""

    def start(self, request: LaunchRequest) -> LaunchedJob:
        """Start the job in a session of its own."""


class NoopJob:
    """A job without processes: it runs until it is signalled, or ends with `exit_code` at once."""

    def __init__(self, exit_code: int | None = None) -> None:
        self.exit_code = exit_code
        self.signals: list[signal.Signals] = []
        self.closed = False
        self.removed = False
        self.undergone: list[Teardown] = []

    def poll(self) -> int | None:
        return self.exit_code

    def signal(self, number: signal.Signals) -> None:
        self.signals.append(number)
        if self.exit_code is None:
            self.exit_code = -int(number)

    def pids(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        self.closed = True

    def remove(self) -> None:
        self.removed = True

    def undergo(self, teardown: Teardown) -> None:
        self.undergone.append(teardown)

    def locate(self, path: str) -> Path | None:
        return Path(path)

    def leftovers(self) -> tuple[Leftover, ...]:
        return ()


class NoopLauncher:
    """Starts nothing; `behave` may write the files that agents and collector would have written."""

    name = LauncherName.TORCHRUN

    def __init__(self, behave: Callable[[LaunchRequest], None] | None = None, exit_code: int | None = None) -> None:
        self._behave = behave
        self._exit_code = exit_code
        self.requests: list[LaunchRequest] = []

    def check(self, request: LaunchRequest) -> None:
        pass

    def command(self, request: LaunchRequest) -> tuple[str, ...]:
        return (request.python, request.target, *request.args)

    def start(self, request: LaunchRequest) -> LaunchedJob:
        self.requests.append(request)
        if self._behave is not None:
            self._behave(request)
        return NoopJob(self._exit_code)
