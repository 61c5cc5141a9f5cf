"""What one rank measured: a file that appears whole or not at all, written anew after each part. Imports no torch."""

import faulthandler
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hangdrill.rank.files import write_json

__all__ = ["SCHEMA", "Record"]

SCHEMA = "hangdrill.canary/1"
MESSAGE_LENGTH = 2000


@dataclass
class Record:
    """measures: name -> number, the unit is the name's last word. failed: part -> why. doing: the part that is running,
    which is where the rank was when it was killed or hung."""

    path: Path
    rank: int
    world_size: int
    attempt: int
    measures: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    times_ns: dict[str, int] = field(default_factory=dict)
    doing: str = "start"
    waited_s: Callable[[], float] = float
    """Seconds in all that this rank has waited for another job: no part is to pay for them."""

    @classmethod
    def from_environment(cls, out: Path, environ: Mapping[str, str]) -> "Record":
        """Where torchrun says that this rank is."""
        rank, attempt = int(environ.get("RANK", "0")), int(environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        record = cls(
            path=out / f"rank_{rank}.{attempt}.json",
            rank=rank,
            world_size=int(environ.get("WORLD_SIZE", "1")),
            attempt=attempt,
        )
        record.facts = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "python": platform.python_version(),
            "local_rank": int(environ.get("LOCAL_RANK", "0")),
        }
        record.mark("started")
        return record

    def mark(self, name: str) -> None:
        """Note the time of a moment, by the clock that all processes of a host share."""
        self.times_ns[name] = time.time_ns()

    def save(self) -> None:
        """Write the file. Raises OSError."""
        content = {
            "schema": SCHEMA,
            "rank": self.rank,
            "world_size": self.world_size,
            "attempt": self.attempt,
            "doing": self.doing,
            "measures": self.measures,
            "facts": self.facts,
            "failed": self.failed,
            "times_ns": self.times_ns,
        }
        write_json(self.path, content)

    @contextmanager
    def part(self, name: str, *, limit_s: float) -> Iterator[None]:
        """Run one part: what it raises is recorded and the next part may be tried; beyond limit_s the process writes
        its stacks beside the record and ends, by a thread of C that needs no GIL."""
        self.doing, began_s, waited_s = name, time.perf_counter(), self.waited_s()
        self.save()
        with self.path.with_suffix(".stacks").open("w", encoding="utf-8") as stacks:
            faulthandler.dump_traceback_later(limit_s, exit=True, file=stacks)
            try:
                yield
            except Exception as error:
                self.failed[name] = f"{type(error).__name__}: {error}"[:MESSAGE_LENGTH]
                print(f"hangdrill.rank.canary: {name}: {self.failed[name]}", file=sys.stderr, flush=True)
            finally:
                faulthandler.cancel_dump_traceback_later()
        self.path.with_suffix(".stacks").unlink()
        self.doing = ""
        self.measures[f"part_{name}_s"] = time.perf_counter() - began_s - (self.waited_s() - waited_s)
        self.save()
