"""TERM and HUP end a command as Ctrl-C does: by KeyboardInterrupt, so that every `with` and `finally` cleans up.

A command that does better (a drill, the collector) puts its own handlers in their place while it runs.
"""

import atexit
import signal
import sys
import time
from types import CodeType, FrameType

__all__ = ["end_by_interrupt"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAME_WISH_S = 5.0
"""A signal so soon after another says the same (Ctrl-C twice; systemd's HUP behind its TERM), and must not cut the
cleaning up short. After that it counts again: whoever insists is obeyed."""
AGAIN_S = 0.02


def end_by_interrupt() -> None:
    """Let INT, TERM and HUP raise KeyboardInterrupt in the main thread. One that is ignored (nohup) stays so.

    A handler runs wherever the main thread is, also in a `__del__` or a weakref's callback, out of which Python lets no
    exception: it tells `sys.unraisablehook` and goes on. The signal then comes again, AGAIN_S later, by an alarm. Until
    then an alarm is that of who started the command (a time limit), and does what it does.
    """
    last_s, last = float("-inf"), 0
    before = sys.unraisablehook

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last_s, last
        now_s = time.monotonic()
        if now_s - last_s < SAME_WISH_S:
            return
        last_s, last = now_s, number
        raise KeyboardInterrupt

    def swallowed(what: "sys.UnraisableHookArgs") -> None:
        if issubclass(what.exc_type, KeyboardInterrupt) and last:  # what comes in here, too, is the same wish
            signal.signal(signal.SIGALRM, again)
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            before(what)

    def again(number: int, frame: FrameType | None) -> None:
        nonlocal last_s
        if _is_within(frame, swallowed.__code__):  # which lets no exception out either
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            last_s = float("-inf")
            signal.raise_signal(last)

    def finish() -> None:
        """All is done and told: only the interpreter is left to be taken apart."""
        sys.unraisablehook = before
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in SIGNALS:  # Python would put the default back, and end by a late one with another exit code
            signal.signal(number, signal.SIG_IGN)

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    sys.unraisablehook = swallowed
    atexit.register(finish)


def _is_within(frame: FrameType | None, code: CodeType) -> bool:
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
