"""Reads what a dead process left: one file at a time in a process of its own, so that it is known which one kills."""

import multiprocessing
import os
import signal
from concurrent.futures import BrokenExecutor
from multiprocessing.process import BaseProcess

from hangdrill.model.diagnosis import UnreadableDump
from hangdrill.model.errors import MachineError
from hangdrill.readers.batches import Read, Unseen, as_asked, sent
from hangdrill.readers.landing import Overdue, landed
from hangdrill.readers.processes import Processes
from hangdrill.recorder import DumpJob, Outcome

__all__ = ["LoneReader", "visible"]

START_DEADLINE_S = 60.0


class LoneReader:
    """One process, started when it is needed, and another one after each death."""

    def __init__(self, *, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self._pool: Processes | None = None
        self._process: BaseProcess | None = None

    def read(self, read: Read, job: DumpJob) -> Outcome:
        """What became of the job; also when its process dies."""
        pool = self._started()
        try:
            (outcome,) = landed(pool, pool.submit(read, (sent(job),)), self.deadline_s)
        except Unseen:  # here as little as there: let the reader say why
            return read(job)
        except Overdue:
            return self._lost(job, f"reading it took more than {self.deadline_s:g} s")
        except BrokenExecutor:
            process = self._process
            self.close()  # its pool has waited for the process then; to wait for it beside the pool loses the exit code
            return self._lost(job, f"the process that read it died: {_how(process)}")
        except MemoryError:
            return self._lost(job, "the process that read it ran out of memory")
        return as_asked(job, outcome)

    def close(self) -> None:
        """End the process, if there is one."""
        pool, self._pool, self._process = self._pool, None, None
        if pool is not None:
            pool.close()

    def _started(self) -> Processes:
        """A process that is known to work, so that its death is the next file's doing."""
        if self._pool is None:
            known = set(multiprocessing.active_children())
            self._pool = Processes(1)
            try:
                landed(self._pool, self._pool.submit(_nothing, ()), START_DEADLINE_S)
            except (BrokenExecutor, Overdue) as problem:
                raise MachineError(
                    f"a process that read dumps died, and no other can be started: {problem}",
                    next_step='look for memory and process limits; a script needs `if __name__ == "__main__":`',
                ) from problem
            self._process = next((one for one in multiprocessing.active_children() if one not in known), None)
        return self._pool

    def _lost(self, job: DumpJob, error: str) -> Outcome:
        self.close()
        return Outcome(unreadable=UnreadableDump(rank=job.rank, file=job.shown, error=error))


def _how(process: BaseProcess | None) -> str:
    """With what signal or code; the kernel's out-of-memory killer uses SIGKILL."""
    code = None if process is None else process.exitcode
    if code is None or code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"{name}, as when memory runs out" if name == "SIGKILL" else name


def visible(path: str) -> bool:
    """Whether this process can open the file."""
    return os.access(path, os.R_OK)


def _nothing(job: DumpJob) -> Outcome:
    return Outcome()
