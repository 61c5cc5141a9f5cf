"""Where an artifact goes below the target: PREFIX/<job>/<UTC time>-<run>/<host>/<artifact>. Pure.

The artifact's own name holds rank and attempt (rank_3.a0.dump.pickle). Every part has safe characters only, so that it
is the same on each store and in a shell.
"""

import re
import time

import msgspec

__all__ = ["Address", "safe"]

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 100


def safe(text: str, *, empty: str = "none") -> str:
    """One part of an object's name: letters, digits, `.`, `_` and `-`, first none of `.` and `-`; never empty."""
    return _UNSAFE.sub("-", text).lstrip("-.").rstrip("-")[:_LONGEST] or empty


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Of one run on one host. started_ns: when the run began, the same at every later call."""

    job: str
    run: str
    host: str
    started_ns: int

    @property
    def run_directory(self) -> str:
        """`<job>/<UTC time>-<run>`: the level at which evidence is found, and at which its age is read."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.started_ns // 1_000_000_000))
        return f"{safe(self.job, empty='job')}/{stamp}-{safe(self.run, empty='run')}"

    @property
    def directory(self) -> str:
        """`<job>/<UTC time>-<run>/<host>`."""
        return f"{self.run_directory}/{safe(self.host, empty='host')}"

    def name_of(self, path: str) -> str:
        """The object's name below the target."""
        return f"{self.directory}/{safe(path)}"
