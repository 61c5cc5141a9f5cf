"""How the rank's program ends: announced, and only then let go, so that the evidence of all ranks is pulled first.

Without this torchrun ends the other ranks within seconds of the first failure. A SIGTERM that finds the main thread
inside C++ is seen by a watch thread through the wake-up descriptor of Python's signal handling. A handler of the
user's own for SIGTERM is left alone. Used under trigger = "collector" only.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from hangdrill.rank.files import Flags, wait_until, write_json
from hangdrill.rank.leaving import die_of, exit_code
from hangdrill.rank.orders import Identity
from hangdrill.rank.stacks import frames_of_main_thread, frames_of_traceback, out_of_distributed

__all__ = ["Ending"]

MESSAGE_CHARS = 2000


class Ending:
    """Announces the end of this rank once, and waits for the word to go."""

    def __init__(self, flags: Flags, who: Identity, *, exit_wait_s: float, last: Callable[[], dict[str, Any]]) -> None:
        """last: the operation entered last, as keys of exit.json."""
        self._flags = flags
        self._who = who
        self._wait_s = exit_wait_s
        self._last = last
        self._announced: BaseException | str | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._gone = threading.Event()

    def watch_signals(self) -> None:
        """Handle SIGTERM from here on. Call it in the main thread, before the user's program runs."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._forget_in_child)
        threading.Thread(target=self._watch, args=(reader,), name="hangdrill-signals", daemon=True).start()

    def before_destroy(self) -> None:
        """The program destroys its groups: if an exception is on its way out, let the evidence out before they go."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, GeneratorExit | StopIteration):
            self.by_exception(error)

    def by_exception(self, error: BaseException) -> None:
        """The program ends with an exception (SystemExit is an orderly one)."""
        code = exit_code(error)
        orderly = isinstance(error, SystemExit)
        cause = error.__context__ if orderly and code else None if orderly else error  # `except ...: sys.exit(1)`
        details: dict[str, Any] = {}
        if cause is not None:
            details = {
                "exception_type": _type_name(cause),
                "exception_message": str(cause)[:MESSAGE_CHARS],
                "in_distributed": out_of_distributed(cause),
            }
        details["frames"] = frames_of_traceback((cause or error).__traceback__)
        self._end(error, "exit" if orderly else "exception", code, details)

    def normally(self) -> None:
        """The program ran to its end."""
        self._end("end", "exit", 0, {})

    def finish(self) -> None:
        """Nothing is left to announce: SIGTERM ends the process at once again."""
        if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _end(self, key: BaseException | str, status: str, code: int, details: dict[str, Any]) -> None:
        """Announce and wait. The same exception is announced once; a later end, after a recovery, replaces it."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._announced is key or self._announced == "signal":
                return
            self._announced = key
        self._write(status, code, details)
        wait_until(self._flags.may_leave, limit_s=self._wait_s)

    def _write(self, status: str, code: int, details: dict[str, Any]) -> None:
        content = {"rank": self._who.rank, "attempt": self._who.attempt, "status": status, "code": code}
        write_json(
            self._flags.control / f"{self._who.stem}.exit.json",
            {**content, **details, **self._last(), "time_ns": time.time_ns()},
        )

    def _on_sigterm(self, signum: int, frame: FrameType | None) -> None:
        """In the main thread: stand still while the watch thread announces, and then ends the process."""
        with self._lock:
            if self._announced is not None and self._announced != "signal":
                return  # the program is over already and waits for its ack
        self._gone.wait(self._wait_s + 5.0)

    def _watch(self, reader: int) -> None:
        while os.getpid() == self._pid:
            got = os.read(reader, 64)
            if signal.SIGTERM in got and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
                self._end_by_signal()

    def _end_by_signal(self) -> None:
        with self._lock:
            if self._announced is not None:
                return
            self._announced = "signal"
        self._write("signal", int(signal.SIGTERM), {"frames": frames_of_main_thread()})
        wait_until(self._flags.may_leave, limit_s=self._wait_s)
        die_of(signal.SIGTERM)

    def _forget_in_child(self) -> None:
        """A forked child (a DataLoader worker) shares the pipe: its signals must not end the rank."""
        signal.set_wakeup_fd(-1)
        if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
