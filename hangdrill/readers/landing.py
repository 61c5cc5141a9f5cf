"""Waits for one batch: not for ever, and in a place where an interrupt does no harm."""

import time
from concurrent.futures import Future
from queue import Empty, SimpleQueue

from hangdrill.readers.deferred import uninterrupted
from hangdrill.readers.engine import Engine
from hangdrill.recorder import Outcome

__all__ = ["Overdue", "landed"]

LOOK_S = 2.0


class Overdue(Exception):
    """The batch was not read within its deadline."""


def landed(engine: Engine, future: Future[tuple[Outcome, ...]], deadline_s: float) -> tuple[Outcome, ...]:
    """The outcomes. Raises Overdue, what the reading raised and, asked every LOOK_S, what `engine.check` raises.

    `future.result` is no place to wait in: an interrupt can leave the future's lock locked, for which the executor's
    thread then waits for ever, and so does who shuts the executor down. A SimpleQueue holds nothing meanwhile.
    """
    done: SimpleQueue[Future[tuple[Outcome, ...]]] = SimpleQueue()
    with uninterrupted():
        future.add_done_callback(done.put)
    ends_s = time.monotonic() + deadline_s
    while (left_s := ends_s - time.monotonic()) > 0:
        try:
            done.get(timeout=min(LOOK_S, left_s))
        except Empty:
            engine.check()
        else:
            with uninterrupted():
                return future.result(timeout=0)
    raise Overdue
