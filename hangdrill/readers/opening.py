"""Chooses who reads: this process, processes of this machine where that is worth it, or the cluster that was named."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from operator import length_hint

from hangdrill.model.errors import UsageError
from hangdrill.readers.batches import Read, weight
from hangdrill.readers.engine import Progress, no_progress, usable_cpus
from hangdrill.readers.flight import read_batches
from hangdrill.readers.processes import Processes
from hangdrill.recorder import DumpJob, Each, Outcome

__all__ = ["FEW_BYTES", "FEW_JOBS", "open_executor", "read_here"]

FEW_JOBS = 16
FEW_BYTES = 8 * 1024 * 1024
"""Fewer files or fewer bytes than these are read before the processes for them have started."""
MANY_JOBS = 1024
"""So many files are worth processes, however small they are."""
MAX_PROCESSES = 32
"""More do not help: their outcomes all come to one process."""
DASK = "dask://"


@contextmanager
def open_executor(
    spec: str | None = None, *, processes: int | None = None, progress: Progress = no_progress
) -> Iterator[Each]:
    """An `Each` for as long as the block lasts; what was started for it is ended with the block.

    spec: None for this machine, or dask://HOST:PORT. processes: at most so many on this machine (1: this process
    reads); default: as many as this process has CPUs. Raises UsageError (a spec that is none), MachineError (no
    cluster there).
    """
    if spec is not None:
        with _cluster(spec, processes, progress) as each:
            yield each
        return
    count = min(processes or usable_cpus(), MAX_PROCESSES)
    if count == 1:
        yield read_here(progress)
        return
    local = _Local(count, progress)
    try:
        yield local.each
    finally:
        local.close()


def read_here(progress: Progress = no_progress) -> Each:
    """An `Each` that reads in this process, one file after the other."""

    def each(read: Read, jobs: Iterable[DumpJob]) -> Iterator[Outcome]:
        total = length_hint(jobs, 0)
        for done, outcome in enumerate(map(read, jobs), start=1):
            progress(done, max(total, done))
            yield outcome

    return each


class _Local:
    """Processes that start when the first incident comes that is worth it."""

    def __init__(self, count: int, progress: Progress) -> None:
        self.count = count
        self.progress = progress
        self.pool: Processes | None = None

    def each(self, read: Read, jobs: Iterable[DumpJob]) -> Iterator[Outcome]:
        """Here, or by the processes."""
        rest = iter(jobs)
        first = _peeled(rest)
        everything = _Counted(chain(first, rest), length_hint(jobs, 0))
        if self.pool is None and not _is_worth(first):
            return iter(read_here(self.progress)(read, everything))
        self.pool = self.pool or Processes(self.count)
        return iter(read_batches(self.pool, progress=self.progress)(read, everything))

    def close(self) -> None:
        """End what was started."""
        if self.pool is not None:
            self.pool.close()


class _Counted:
    """Jobs, and about how many there are."""

    def __init__(self, jobs: Iterable[DumpJob], total: int) -> None:
        self.jobs = jobs
        self.total = total

    def __iter__(self) -> Iterator[DumpJob]:
        return iter(self.jobs)

    def __length_hint__(self) -> int:
        return self.total


def _peeled(jobs: Iterator[DumpJob]) -> list[DumpJob]:
    """So many of the first jobs that it can be told whether processes are worth it."""
    first: list[DumpJob] = []
    held = 0
    while len(first) < MANY_JOBS and (len(first) < FEW_JOBS or held < FEW_BYTES):
        job = next(jobs, None)
        if job is None:
            break
        first.append(job)
        held += weight(job)
    return first


def _is_worth(first: list[DumpJob]) -> bool:
    enough = len(first) >= FEW_JOBS and sum(map(weight, first)) >= FEW_BYTES
    return enough or len(first) >= MANY_JOBS


@contextmanager
def _cluster(spec: str, processes: int | None, progress: Progress) -> Iterator[Each]:
    if processes is not None:
        raise UsageError(
            "--jobs is for processes of this machine, and an executor was named",
            where="--jobs",
            next_step="leave one of the two out; a cluster has the workers that were started for it",
        )
    if not spec.startswith(DASK):
        raise UsageError(
            f"not an executor that is known: {spec!r}", where="--executor", next_step="give dask://HOST:PORT"
        )
    from hangdrill.readers.cluster import connected

    with connected(spec) as cluster:
        yield read_batches(cluster, progress=progress)
