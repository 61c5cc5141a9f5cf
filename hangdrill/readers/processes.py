"""Processes of this machine that read dumps, and that end: with their pool, by Ctrl-C, or when their parent is killed.

They are forked from a server that has loaded the reader and has no threads. INT, TERM and HUP, which a terminal or a
scheduler sends to all of a job, are the parent's alone. A pipe that only the parent can close tells them to stop, and a
process that does not stop then ends itself.
"""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import ExitStack, suppress
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.context import BaseContext

from hangdrill.model.errors import MachineError
from hangdrill.readers.batches import Batch, Read, read_batch
from hangdrill.readers.deferred import ENDING, uninterrupted
from hangdrill.recorder import Outcome

__all__ = ["Processes"]

PRELOAD = ["hangdrill.readers.batches", "hangdrill.readers.processes"]
MAX_RENEWALS = 3
GRACE_S = 2.0
_UNTOUCHED = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, None)
_stop = threading.Event()
"""In a worker: nobody wants the rest."""
_go: "list[connection.Connection]" = []
"""In a worker: ready once all are started."""


class Processes:
    """An engine of so many processes. After MAX_RENEWALS broken pools the machine is not asked for another."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._renewals = 0
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOAD)
        self._open_or_close()

    def submit(self, read: Read, batch: Batch) -> Future[tuple[Outcome, ...]]:
        """In one of the processes."""
        with uninterrupted():  # in the executor's locks
            return self.executor.submit(_read_until_stopped, read, batch)

    def cancel(self, future: Future[tuple[Outcome, ...]]) -> None:
        """Nothing here: `close` lets the executor's own thread do it. Cancelled by another thread while the pool
        breaks, a future makes it fail, with a traceback on stderr (Python 3.10 and 3.11). What a consumer leaves
        behind while the pool goes on is read for nobody, a window at most."""

    def renew(self) -> bool:
        """Another pool, a few times."""
        self.close()
        self._renewals += 1
        if self._renewals > MAX_RENEWALS:
            return False
        self._open_or_close()
        return True

    def check(self) -> None:
        """Raise BrokenExecutor when the pool is broken: a future that came too late to be told waits for ever."""
        with uninterrupted():
            self.executor.submit(int)

    def gone(self) -> MachineError:
        """Nobody but the reading cancels."""
        return MachineError("the processes that read dumps were ended", next_step="run it again")

    def close(self) -> None:
        """End all processes. Safe to repeat. Not cut in two: what frees a semaphore would be, and the resource tracker
        would tell of a leak."""
        with uninterrupted():
            self._stop_writer.close()
            self.executor.shutdown(wait=True, cancel_futures=True)
            self._stop_reader.close()

    def _open_or_close(self) -> None:
        """An interrupt meanwhile waits until all are started, and then ends them: a process whose start is cut short
        writes a traceback. Raises MachineError when one cannot be started, or the fork server dies meanwhile."""
        taken = _taken()
        try:
            with ExitStack() as stack:
                with uninterrupted():
                    self._open(taken, stack)
                stack.pop_all()
        except TimeoutError:  # of a handler of the program's own, as at an alarm
            raise
        except (OSError, EOFError) as problem:
            raise MachineError(
                f"processes that read dumps cannot be started: {str(problem) or type(problem).__name__}",
                next_step="look for memory and for limits of processes and open files, or read with --jobs 1",
            ) from problem

    def _open(self, taken: "set[signal.Signals]", stack: ExitStack) -> None:
        """All processes are started before anything is read. Of a pool that breaks meanwhile the reading hears when it
        hands it work."""
        _start_servers(taken)
        self._stop_reader, self._stop_writer = self._context.Pipe(duplex=False)
        go_reader, go_writer = self._context.Pipe(duplex=False)
        self.executor = _StartsAllAtOnce(self.workers, self._context, self._stop_reader, go_reader)
        stack.callback(self.close)
        with go_reader, go_writer, suppress(BrokenExecutor):
            for _ in range(self.workers):
                self.executor.submit(_wait_for_go)


class _StartsAllAtOnce(ProcessPoolExecutor):
    """With the first job, as Python's own does where it forks. It starts one with each job else, and in Python 3.10 and
    3.11 the thread that looks after them fails, with a traceback, when one dies while another is started."""

    def __init__(
        self, workers: int, context: BaseContext, stop: "connection.Connection", go: "connection.Connection"
    ) -> None:
        super().__init__(workers, mp_context=context, initializer=_begin, initargs=(stop, go))
        self._safe_to_dynamically_spawn_children = False


def _taken() -> "set[signal.Signals]":
    """The signals that end a program for which this one has a handler of its own."""
    return {number for number in ENDING if signal.getsignal(number) not in _UNTOUCHED}


def _start_servers(taken: "set[signal.Signals]") -> None:
    """The fork server and Python's resource tracker never get what this program takes for its end, not even before they
    could say that they ignore it, and so it is with the workers: they inherit what is blocked. In a program that leaves
    these signals as they are nothing is blocked: its own pools have the same fork server."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, taken & {signal.SIGHUP})
    try:
        resource_tracker.ensure_running()  # it unblocks INT and TERM when it starts, and ignores them
        signal.pthread_sigmask(signal.SIG_BLOCK, taken)
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(stop: "connection.Connection", go: "connection.Connection") -> None:
    """The first thing that a worker does."""
    _go.append(go)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # the fork server may be somebody else's
    threading.Thread(target=_end_with, args=(stop,), name="hangdrill-parent-watch", daemon=True).start()
    threading.Thread(target=_end_by_parent, name="hangdrill-term-watch", daemon=True).start()


def _end_with(stop: "connection.Connection") -> None:
    """Wait until the parent closes the pipe or is gone; leave the file in hand GRACE_S, unless nobody is there."""
    connection.wait([stop])
    _stop.set()
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join(timeout=GRACE_S)
    os._exit(1)


def _end_by_parent() -> None:
    """Take the TERM by which a pool that broke ends its other workers. What anybody else sends is the parent's affair:
    a worker that it killed would break the pool in the moment in which the parent is interrupted."""
    parent = multiprocessing.parent_process()
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != getattr(parent, "pid", None):
        pass
    os._exit(1)


def _wait_for_go() -> None:
    """Keeps a worker busy, so that the pool starts the next one, until the parent closes the other end."""
    connection.wait(_go)


def _read_until_stopped(read: Read, batch: Batch) -> tuple[Outcome, ...]:
    return read_batch(lambda job: Outcome() if _stop.is_set() else read(job), batch)
