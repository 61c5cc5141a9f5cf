"""Jobs in batches: what is sent to another process at once and read there. What dumps of a batch share goes once.

Runs on both sides, so it imports only what a worker needs. Paths are sent absolute, because a worker of a cluster has a
working directory of its own; `as_asked` gives the outcome the name back that the user typed.
"""

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from hangdrill.recorder import DumpJob, Outcome
from hangdrill.recorder.printable import printable

__all__ = [
    "MAX_BATCH_BYTES",
    "MAX_BATCH_JOBS",
    "Batch",
    "Read",
    "Unseen",
    "as_asked",
    "in_batches",
    "read_batch",
    "sent",
    "weight",
]

MAX_BATCH_JOBS = 32
MAX_BATCH_BYTES = 16 * 1024 * 1024
"""Of the files of a batch; a file that is larger is a batch of its own."""

Batch = tuple[DumpJob, ...]
Read = Callable[[DumpJob], Outcome]


class Unseen(Exception):
    """A worker cannot open a file of its batch. args: the path, and the worker's host."""


def in_batches(jobs: Iterable[DumpJob], *, max_jobs: int = MAX_BATCH_JOBS) -> Iterator[Batch]:
    """Batches of at most so many jobs and MAX_BATCH_BYTES. Takes one job more than it hands out."""
    batch: list[DumpJob] = []
    held = 0
    for job in jobs:
        size = weight(job)
        if batch and (len(batch) >= max_jobs or held + size > MAX_BATCH_BYTES):
            yield tuple(batch)
            batch, held = [], 0
        batch.append(job)
        held += size
        if len(batch) >= max_jobs:
            yield tuple(batch)
            batch, held = [], 0
    if batch:
        yield tuple(batch)


def weight(job: DumpJob) -> int:
    """Bytes of the file; 0 when nobody knows."""
    if not job.path:
        return len(job.data)
    try:
        return os.stat(job.path).st_size  # noqa: PTH116 - a hundred thousand paths, and no need of an object for each
    except (OSError, ValueError):
        return 0


def read_batch(read: Read, batch: Batch) -> tuple[Outcome, ...]:
    """What became of each job. Raises Unseen when this process cannot open what the one that asks may see."""
    for job in batch:
        if job.path and not os.access(job.path, os.R_OK):
            raise Unseen(job.path, socket.gethostname())
    return tuple(read(job) for job in batch)


def sent(job: DumpJob) -> DumpJob:
    """The job as another process can do it."""
    if not job.path or job.path.startswith("/"):
        return job
    return msgspec.structs.replace(job, path=str(Path(job.path).absolute()))


def as_asked(job: DumpJob, outcome: Outcome) -> Outcome:
    """The outcome of `sent(job)`, with the path as the user typed it."""
    path = sent(job).path
    if path == job.path:
        return outcome
    dump, unreadable = outcome.dump, outcome.unreadable
    if dump is not None:
        dump = msgspec.structs.replace(dump, path=job.shown)
    if unreadable is not None:
        error = unreadable.error.replace(printable(path), job.shown)
        unreadable = msgspec.structs.replace(unreadable, error=error)
    return Outcome(dump=dump, unreadable=unreadable)
