"""Jobs, a place with many dumps, and waits with a deadline."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hangdrill.recorder import DumpJob, Outcome, read_job

DUMPS = Path(__file__).parents[1] / "data" / "dumps"
GLOO = DUMPS / "gloo" / "hold-rank-1-of-3"
DEADLINE_S = 60.0


def jobs(count: int, *, size: int = 0) -> list[DumpJob]:
    """Jobs that carry bytes, as those of an archive do: all but `size` of them are a small dump."""
    data = bytes(size) if size else (GLOO / "fr_0").read_bytes()
    return [DumpJob(rank=rank, shown=f"all.tar!fr_{rank}", data=data) for rank in range(count)]


def path_jobs(place: Path, count: int) -> list[DumpJob]:
    """Jobs of files, each a copy of one dump."""
    for rank in range(count):
        (place / f"fr_{rank}").write_bytes((GLOO / "fr_0").read_bytes())
    return [
        DumpJob(rank=rank, shown=str(place / f"fr_{rank}"), path=str(place / f"fr_{rank}")) for rank in range(count)
    ]


def read_all(some: list[DumpJob]) -> list[Outcome]:
    return [read_job(job) for job in some]


class Counted:
    """Jobs that count how many were taken."""

    def __init__(self, some: list[DumpJob]) -> None:
        self.some = some
        self.taken = 0

    def __iter__(self) -> Iterator[DumpJob]:
        for job in self.some:
            self.taken += 1
            yield job

    def __length_hint__(self) -> int:
        return len(self.some)


def wait_until(probe: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    ends_s = time.monotonic() + deadline_s
    while not probe():
        assert time.monotonic() < ends_s, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.02)  # between two looks


def session_members(leader: int) -> set[int]:
    """Living processes of a session, zombies left out."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == leader and state != "Z":
            found.add(int(entry.name))
    return found


def environ(**more: str) -> dict[str, str]:
    """The environment of a child that can import hangdrill and these tests' modules."""
    root = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(Path(__file__).parent)]), **more}
