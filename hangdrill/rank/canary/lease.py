"""A lease: a file that the controller keeps rewriting, so that what runs on another node ends by itself without it.

ssh ends nothing on the other side when it is killed, and a controller that was killed tells nobody. Clocks of nodes are
not compared: what counts is that the file changes, as this node sees it. Imports no torch.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ENDED", "END_WORD", "LEASE_VARIABLE", "LIMIT_S", "Lease", "end_with_lease"]

LEASE_VARIABLE = "HANGDRILL_LEASE"
END_WORD = b"end"
LIMIT_S = 30.0
"""So long after its last change the lease is over."""
LOOK_S = 0.5
ENDED = 75
"""Exit code of what ended with its lease."""


class Lease:
    """The file as this process sees it, read by a thread of its own: a file server may hang, and the rest must not."""

    def __init__(self, path: Path, *, limit_s: float = LIMIT_S) -> None:
        self._path, self._limit_s = path, limit_s
        self._content: bytes | None = None
        self._changed_s = time.monotonic()
        self._ended = False

    def look(self) -> bool:
        """Read it now; whether it could be read."""
        content = None
        with contextlib.suppress(OSError):
            content = self._path.read_bytes()
        if content is None:
            return False
        if content != self._content:
            self._content, self._changed_s = content, time.monotonic()
        self._ended = self._ended or content.startswith(END_WORD)
        return True

    def keep_looking(self) -> None:
        """From now on, in a thread that ends with the process."""
        threading.Thread(target=self._look_on, name="lease", daemon=True).start()

    def over(self) -> str:
        """Why it is over, or nothing. Reads no file."""
        if self._ended:
            return "the controller ended the job"
        if time.monotonic() - self._changed_s > self._limit_s:
            return f"nothing was heard of the controller for {self._limit_s:g} s"
        return ""

    def _look_on(self) -> None:
        while not self._ended:
            self.look()
            time.sleep(LOOK_S)


def end_with_lease(environ: Mapping[str, str]) -> None:
    """End this process as soon as the lease that the environment names is over; nothing without one."""
    if not environ.get(LEASE_VARIABLE):
        return
    lease = Lease(Path(environ[LEASE_VARIABLE]))
    lease.keep_looking()

    def watch() -> None:
        while not (why := lease.over()):
            time.sleep(LOOK_S)
        print(f"hangdrill.rank.canary: {why}", file=sys.stderr, flush=True)
        os._exit(ENDED)

    threading.Thread(target=watch, name="end with lease", daemon=True).start()
