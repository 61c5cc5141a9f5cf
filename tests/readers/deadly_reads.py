"""Ways to read a job that end, hold or fail the process that reads. Other processes import this by name."""

import os
import signal
from pathlib import Path

from hangdrill.recorder import DumpJob, Outcome, read_job

DEADLY_RANKS = {3, 40}
HELD = "HANGDRILL_TEST_HELD"
"""Names a directory with a FIFO `gate`, on which `held` waits for ever; each waiting process leaves its pid there."""


def empty(job: DumpJob) -> Outcome:
    return Outcome()


def deadly(job: DumpJob) -> Outcome:
    if job.rank in DEADLY_RANKS:
        os.kill(os.getpid(), signal.SIGKILL)
    return read_job(job)


def deadly_in_workers(job: DumpJob) -> Outcome:
    """Kills only a worker of dask: what is read again elsewhere is well."""
    if job.rank in DEADLY_RANKS and os.environ.get("HANGDRILL_TEST_WORKER"):
        os.kill(os.getpid(), signal.SIGKILL)
    return read_job(job)


def exits(job: DumpJob) -> Outcome:
    os._exit(7)


def buggy(job: DumpJob) -> Outcome:
    raise KeyError(f"a bug, at rank {job.rank}")


def greedy(job: DumpJob) -> Outcome:
    raise MemoryError


def at_gate(job: DumpJob) -> Outcome:
    """Waits at the FIFO `gate` beside the file, and leaves its pid there; rank 0 goes through."""
    place = Path(job.path).parent
    if job.rank:
        (place / f"{os.getpid()}.pid").touch()
        with (place / "gate").open("rb"):
            pass
    return read_job(job)


def held(job: DumpJob) -> Outcome:
    place = Path(os.environ[HELD])
    (place / f"{os.getpid()}.pid").touch()
    with (place / "gate").open("rb"):  # nobody ever opens the other end
        return Outcome()
