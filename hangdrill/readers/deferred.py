"""A moment that INT, TERM and HUP do not cut in two: they are kept until it is over, and then do what they do."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["ENDING", "uninterrupted"]

ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""The signals that ask a program to end."""
PATIENCE_S = 5.0


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Keep what comes meanwhile; a signal that comes PATIENCE_S after the first kept one goes through at once.

    In the handlers and not in the mask of the thread: another thread would get the signal, and Python would run the
    handler here all the same. Outside the main thread, where no handler runs, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    taken = {number: old for number, old in before.items() if old is not None and old is not signal.SIG_IGN}
    kept: list[tuple[int, float]] = []
    is_over = False

    def keep(number: int, frame: FrameType | None) -> None:
        if not is_over:
            kept.append((number, time.monotonic()))
        if is_over or kept[-1][1] - kept[0][1] > PATIENCE_S:
            restore()
            signal.raise_signal(number)

    def restore() -> None:
        for number, old in taken.items():
            signal.signal(number, old)

    try:
        for number in taken:
            signal.signal(number, keep)
        yield
    finally:
        is_over = True  # an interrupt among the handlers leaves some of ours, which then keep nothing
        restore()
        if kept:
            signal.raise_signal(kept[0][0])
