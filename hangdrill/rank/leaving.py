"""The very end of a rank's process: what Python would do when the program is over, in the same order and with the same
exit status, but without tearing the interpreter down.

torch 2.15 with gloo dies in that teardown about every second time, after a healthy program: "terminate called without
an active exception", SIGABRT (docs/what-torch-does.md). A drill must end the same way each time it is run.
"""

import atexit
import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

from hangdrill.rank.target import without_agent_frames

__all__ = ["die_of", "exit_code", "leave", "print_error"]

FLUSH_FAILED = 120
"""Python's own exit status when its last output could not be written."""


def leave(error: BaseException | None) -> NoReturn:
    """End the process as Python ends a program that raised `error`, or ran to its end (None)."""
    print_error(error)
    _run(threading._shutdown)  # type: ignore[attr-defined]  # waits for the program's own threads
    _run(atexit._run_exitfuncs)
    flushed = _flush()
    if isinstance(error, KeyboardInterrupt):
        die_of(signal.SIGINT)
    os._exit(exit_code(error) if flushed else FLUSH_FAILED)


def print_error(error: BaseException | None) -> None:
    """Print what Python would have printed, without the agent's frames."""
    if error is None:
        return
    if isinstance(error, SystemExit):
        if not isinstance(error.code, int | None):
            print(error.code, file=sys.stderr)
        return
    error = error.with_traceback(without_agent_frames(error.__traceback__))
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:
        print("Error in sys.excepthook:", file=sys.stderr)
        traceback.print_exc()
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)


def exit_code(error: BaseException | None) -> int:
    """The exit status; of a program that was interrupted, the one a shell shows for it."""
    if isinstance(error, SystemExit):
        code = error.code
        return 0 if code is None else code & 0xFF if isinstance(code, int) else 1
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    return 0 if error is None else 1


def die_of(signum: signal.Signals) -> None:
    """As if the signal had never been handled; from any thread, which `signal.signal` cannot do."""
    ctypes.CDLL(None).signal(int(signum), None)
    os.kill(os.getpid(), signum)


def _run(last_duty: Callable[[], object]) -> None:
    """Whatever it raises is printed, and the end goes on."""
    try:
        last_duty()
    except BaseException:
        traceback.print_exc()


def _flush() -> bool:
    flushed = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):
            flushed = False
    return flushed
