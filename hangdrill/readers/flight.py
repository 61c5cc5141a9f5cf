"""Keeps a bounded number of batches in the air and hands out their outcomes in the order of the jobs.

Jobs are taken only as the window moves on, since a job of an archive carries its bytes. A batch whose process died is
read again here, file by file (`lone`), so that one file that kills its reader costs no other. When the consumer stops,
by an exception, Ctrl-C or by closing the generator, what is pending is cancelled.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import closing
from operator import length_hint

import msgspec

from hangdrill.model.errors import HangdrillError, MachineError
from hangdrill.readers.batches import MAX_BATCH_JOBS, Batch, Read, Unseen, as_asked, in_batches, sent
from hangdrill.readers.engine import Engine, GivenExecutor, Progress, no_progress
from hangdrill.readers.landing import Overdue, landed
from hangdrill.readers.lone import LoneReader, visible
from hangdrill.recorder import DumpJob, Each, Outcome

__all__ = ["MAX_FLIGHT_BYTES", "read_batches", "read_in_batches"]

MAX_FLIGHT_BYTES = 256 * 1024 * 1024
"""Carried by the jobs in the air (of archives): beyond that no batch is begun until one has landed."""
BATCHES_A_WORKER = 4
"""So many batches each worker gets of a small incident, so that none idles while another has much left."""
BATCH_DEADLINE_S = 600.0


class Flying(msgspec.Struct, kw_only=True):
    """A batch that was begun. future: None when it could not even be begun. generation: of the executor that has it."""

    batch: Batch
    future: Future[tuple[Outcome, ...]] | None
    generation: int


def read_in_batches(executor: Executor, *, workers: int | None = None, progress: Progress = no_progress) -> Each:
    """An `Each` that reads on the executor, which stays the caller's. workers: how many read at once; default: as many
    as this process has CPUs. Of the executor's machinery only `submit` is used, and `add_done_callback`, `result`
    and `cancel` of a future.
    """
    return read_batches(GivenExecutor(executor, workers), progress=progress)


def read_batches(engine: Engine, *, progress: Progress = no_progress, deadline_s: float = BATCH_DEADLINE_S) -> Each:
    """An `Each` that reads on the engine. Raises MachineError when nobody is left to read or a batch takes too long."""

    def each(read: Read, jobs: Iterable[DumpJob]) -> Iterator[Outcome]:
        total = length_hint(jobs, 0)
        with closing(_Flight(engine, read, jobs, total, deadline_s)) as flight:
            for done, outcome in enumerate(flight.outcomes(), start=1):
                progress(done, max(total, done))
                yield outcome

    return each


class _Flight:
    """One reading: its window of batches, and what dead processes left to be read again."""

    def __init__(self, engine: Engine, read: Read, jobs: Iterable[DumpJob], total: int, deadline_s: float) -> None:
        self.engine = engine
        self.read = read
        self.deadline_s = deadline_s
        share = total // (engine.workers * BATCHES_A_WORKER) if total else MAX_BATCH_JOBS // BATCHES_A_WORKER
        self.batches = in_batches(jobs, max_jobs=max(1, min(MAX_BATCH_JOBS, share)))
        self.window = 2 * engine.workers + 2
        self.air: deque[Flying] = deque()
        self.carried = 0
        self.generation = 0
        self.is_usable = True
        self.lone = LoneReader(deadline_s=deadline_s)

    def outcomes(self) -> Iterator[Outcome]:
        """All of them, in the order of the jobs."""
        while True:
            self._fill()
            if not self.air:
                return
            outcomes = self._landed(self.air[0])
            batch = self.air.popleft().batch
            self.carried -= _carried(batch)
            self._fill()  # before the outcomes are handed out: the workers go on while the consumer thinks
            if outcomes is None:
                yield from (self.lone.read(self.read, job) for job in batch)
            else:
                yield from map(as_asked, batch, outcomes)

    def close(self) -> None:
        """Cancel what is pending."""
        for flying in self.air:
            if flying.future is not None:
                self.engine.cancel(flying.future)
        self.air.clear()
        self.lone.close()

    def _fill(self) -> None:
        while len(self.air) < self.window and (not self.air or self.carried < MAX_FLIGHT_BYTES):
            batch = next(self.batches, None)
            if batch is None:
                return
            self.carried += _carried(batch)
            self.air.append(self._begin(batch))

    def _begin(self, batch: Batch) -> Flying:
        out = tuple(sent(job) for job in batch)
        while self.is_usable:
            try:
                future = self.engine.submit(self.read, out)
                return Flying(batch=batch, future=future, generation=self.generation)
            except (BrokenExecutor, RuntimeError):  # broken, or shut down by somebody else
                self._broken(self.generation)
        return Flying(batch=batch, future=None, generation=self.generation)

    def _landed(self, flying: Flying) -> tuple[Outcome, ...] | None:
        """The outcomes of a batch; None when the process that read it died, or does not see a file of it."""
        if flying.future is None or (flying.generation != self.generation and not flying.future.done()):
            return None
        try:
            return landed(self.engine, flying.future, self.deadline_s)
        except Overdue:
            raise _overdue(flying.batch, self.deadline_s) from None
        except CancelledError:
            if flying.generation == self.generation:
                raise self.engine.gone() from None
        except HangdrillError:
            raise
        except Unseen as blind:
            path, host = blind.args
            if visible(path):
                raise _unseen(path, host) from None
        except BrokenExecutor:
            self._broken(flying.generation)
        except Exception:  # an engine's own word for a worker that died; a bug of ours shows when it is read again
            if not flying.future.done():  # a handler of the program's own raised it, as at an alarm
                raise
            self.engine.check()
        return None

    def _broken(self, generation: int) -> None:
        """The executor of this generation is broken. Of many batches that tell so, the first renews it."""
        if generation == self.generation:
            self.generation += 1
            self.is_usable = self.engine.renew()


def _carried(batch: Batch) -> int:
    return sum(len(job.data) for job in batch)


def _overdue(batch: Batch, deadline_s: float) -> MachineError:
    return MachineError(
        f"a batch of {len(batch)} dumps was not read within {deadline_s:g} s",
        where=batch[0].shown,
        next_step="look whether its file system answers, and whether the workers are busy with something else",
    )


def _unseen(path: str, host: str) -> MachineError:
    return MachineError(
        f"the worker on {host} cannot read this file, and this process can",
        where=path,
        next_step="put the dumps on a file system that all workers have at the same path, or leave the executor out",
    )
