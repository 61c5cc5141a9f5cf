"""TERM and HUP end a command as Ctrl-C does: by KeyboardInterrupt, so that every `with` and `finally` cleans up.

A command that does better (a drill, the collector) puts its own handlers in their place while it runs.
"""

import signal
import time
from types import FrameType

__all__ = ["end_by_interrupt"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAME_WISH_S = 5.0
"""A signal so soon after another says the same (Ctrl-C twice; systemd's HUP behind its TERM), and must not cut the
cleaning up short. After that it counts again: whoever insists is obeyed."""


def end_by_interrupt() -> None:
    """Let INT, TERM and HUP raise KeyboardInterrupt in the main thread. One that is ignored (nohup) stays so."""
    last_s = float("-inf")

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s < SAME_WISH_S:
            return
        last_s = now_s
        raise KeyboardInterrupt

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
