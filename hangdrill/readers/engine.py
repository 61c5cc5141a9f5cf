"""What batches are read on: one small protocol, and the engine of an executor that somebody else owns."""

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from math import ceil
from pathlib import Path
from typing import Protocol

from hangdrill.model.errors import MachineError
from hangdrill.readers.batches import Batch, Read, read_batch
from hangdrill.recorder import Outcome

__all__ = ["Engine", "GivenExecutor", "Progress", "no_progress", "usable_cpus"]

Progress = Callable[[int, int], None]
"""Called with how many jobs are done and how many are known of (0: unknown). It must not fail and must not block."""

_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def no_progress(done: int, total: int) -> None:
    """Nobody watches."""


class Engine(Protocol):
    """Where batches are read. `workers`: how many at once, about."""

    workers: int

    def submit(self, read: Read, batch: Batch) -> Future[tuple[Outcome, ...]]:
        """Begin one batch. Raises BrokenExecutor or RuntimeError when nothing can be begun any more."""

    def cancel(self, future: Future[tuple[Outcome, ...]]) -> None:
        """Nobody waits for that batch any more."""

    def renew(self) -> bool:
        """After the executor broke: whether there is another now."""

    def check(self) -> None:
        """Raise MachineError when there is nobody left to wait for, BrokenExecutor when the executor is broken."""

    def gone(self) -> MachineError:
        """Why batches that were not ours to cancel have been cancelled."""


class GivenExecutor:
    """An executor of the caller's own: any one. It is neither shut down nor replaced."""

    def __init__(self, executor: Executor, workers: int | None = None) -> None:
        self.executor = executor
        self.workers = workers or usable_cpus()

    def submit(self, read: Read, batch: Batch) -> Future[tuple[Outcome, ...]]:
        """As the executor does it."""
        return self.executor.submit(read_batch, read, batch)

    def cancel(self, future: Future[tuple[Outcome, ...]]) -> None:
        """Unless it is being read."""
        future.cancel()

    def renew(self) -> bool:
        """Never: it is not ours to make."""
        return False

    def check(self) -> None:
        """Of a pool of processes: a future that came too late to be told that it broke waits for ever."""
        if isinstance(self.executor, ProcessPoolExecutor):
            self.executor.submit(int)

    def gone(self) -> MachineError:
        """Somebody else shut it down."""
        return MachineError(
            "the executor was shut down while it read dumps",
            where="executor",
            next_step="keep it open until diagnose returns",
        )


def usable_cpus() -> int:
    """How many CPUs this process may use: its affinity, and the quota of its control group."""
    counted = getattr(os, "process_cpu_count", None)  # Python 3.13
    cpus = (counted() if counted else len(os.sched_getaffinity(0))) or 1
    try:
        quota, period = _CPU_MAX.read_text().split()
        return min(cpus, max(1, ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no cgroup v2, or "max": no quota
        return cpus
