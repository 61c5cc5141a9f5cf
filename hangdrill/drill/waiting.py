"""Waiting with a deadline, and being interrupted while doing so.

Signals only set a flag and wake the waits: no exception strikes in the middle of a teardown. A wait that is interrupted
raises Interrupted; the drill's `finally` then ends everything.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import TypeVar

from hangdrill.model.errors import Interrupted

__all__ = ["Interrupt", "Waiter", "handling_signals"]

T = TypeVar("T")
POLL_S = 0.03
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """A request to stop, made by a signal or by another thread; every wait on it wakes at once and stays awake.

    It is a pipe and not a threading.Event: an Event's lock may be held by the very thread that the signal handler
    interrupts.
    """

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self.signal: signal.Signals | None = None

    def request(self, number: int = signal.SIGINT) -> None:
        """Ask for the stop. Safe in a signal handler, safe to repeat."""
        if self.signal is None:
            self.signal = signal.Signals(number)
        with contextlib.suppress(OSError):
            os.write(self._write_end, b"!")

    @property
    def requested(self) -> bool:
        """Whether a stop was asked for."""
        return self.signal is not None

    def wait(self, timeout_s: float) -> bool:
        """Wait until a stop is asked for, at most `timeout_s`; whether it was."""
        if not self.requested:
            select.select([self._read_end], [], [], max(0.0, timeout_s))
        return self.requested

    def check(self) -> None:
        """Raise Interrupted when a stop was asked for."""
        if self.signal is not None:
            raise Interrupted(f"interrupted by {self.signal.name}")

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._read_end)
        os.close(self._write_end)

    def __enter__(self) -> "Interrupt":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextlib.contextmanager
def handling_signals(interrupt: Interrupt) -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP ask for a stop; outside the main thread, where Python handles none, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        interrupt.request(number)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    try:
        for number in taken:
            signal.signal(number, handle)
        yield
    finally:
        for number in reversed(taken):  # INT at last: what it raises would leave the others as they are
            signal.signal(number, before[number] or signal.SIG_DFL)


class Waiter:
    """Waits until a probe answers. Without an interrupt it cannot be interrupted: that is for teardowns.

    tick: called between probes, for progress on the terminal and the like.
    """

    def __init__(self, interrupt: Interrupt | None = None, tick: Callable[[], None] | None = None) -> None:
        self._interrupt = interrupt
        self._tick = tick
        self._never = threading.Event()

    @property
    def interrupted(self) -> bool:
        """Whether a stop was asked for."""
        return self._interrupt is not None and self._interrupt.requested

    def until(self, probe: Callable[[], T | None], *, deadline_s: float, poll_s: float = POLL_S) -> T | None:
        """The probe's first answer that is not None; None once `deadline_s` is over. Probes at least once.

        Raises Interrupted as soon as a stop is asked for.
        """
        ends_s = time.monotonic() + deadline_s
        while True:
            if self._interrupt is not None:
                self._interrupt.check()
            answer = probe()
            if answer is not None:
                return answer
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                return None
            if self._tick is not None:
                self._tick()
            self._pause(min(poll_s, left_s))

    def _pause(self, pause_s: float) -> None:
        if self._interrupt is not None:
            self._interrupt.wait(pause_s)
        else:
            self._never.wait(pause_s)
