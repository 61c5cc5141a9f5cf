"""Several drills at the same time, each in a thread of its own: a failure of one is that one's alone."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from hangdrill.drill.waiting import Interrupt

__all__ = ["run_all"]

T = TypeVar("T")
POLL_S = 0.2


def run_all(tasks: Sequence[Callable[[], T]], *, jobs: int, interrupt: Interrupt) -> list[T]:
    """The tasks' results, in order; `jobs` at a time.

    Once a stop is asked for, those not begun are left out, those begun are waited for (they end what they started), and
    Interrupted is raised.
    """
    with ThreadPoolExecutor(max_workers=max(1, jobs), thread_name_prefix="drill") as executor:
        futures = [executor.submit(task) for task in tasks]
        _wait(futures, interrupt)
        if interrupt.requested:
            for future in futures:
                future.cancel()
    interrupt.check()
    return [future.result() for future in futures]


def _wait(futures: Sequence["Future[T]"], interrupt: Interrupt) -> None:
    """Until all are done or a stop is asked for. The main thread must keep running to take signals."""
    pending = set(futures)
    while pending and not interrupt.requested:
        _, pending = wait(pending, timeout=POLL_S, return_when=FIRST_COMPLETED)
