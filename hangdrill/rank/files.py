"""The agent's files in control/: JSON that appears whole or not at all, and the flags it waits for.

Everything is created readable by its owner only, without touching the umask of the user's program.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Flags", "wait_until", "write_json"]

POLL_S = 0.02
"""How often a wait looks at its flag: short against a drill, and free of cost on the host."""


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` beside `path` and rename it into place (mode 0600). Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file)
    temporary.replace(path)


def wait_until(done: Callable[[], bool], *, limit_s: float, poll_s: float = POLL_S) -> bool:
    """Wait until `done()`; False when `limit_s` passed first."""
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_s)
    return True


class Flags:
    """The files by which the controller and the collector speak to one rank."""

    def __init__(self, control: Path, rank: int, stem: str) -> None:
        self.control = control
        self.hold = control / f"hold_{rank}"
        self.gil = control / f"gil_{rank}"
        self.ack = control / f"{stem}.ack"
        self.teardown = control / "teardown"

    def tearing_down(self) -> bool:
        """Whether the job is being ended on purpose."""
        return self.teardown.exists()

    def released(self) -> bool:
        """Whether a hold of this rank is over: released, or the job is being ended."""
        return not self.hold.exists() or self.teardown.exists()

    def may_leave(self) -> bool:
        """Whether the process may end: its evidence was pulled, or nobody wants it any more."""
        return self.ack.exists() or self.teardown.exists()
