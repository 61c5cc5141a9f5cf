"""Driving a container over its memory limit, so that the kernel's OOM killer ends its ranks as it would in earnest.

The kernel chooses by size and by oom_score_adj, which the owner of a process may raise and nobody here may lower. So
the ranks' is raised to the most there is, what started them comes next, and then a process inside takes memory without
end: the ranks go first, one after the other, then torchrun, and with it the container.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

__all__ = ["MemoryGroup", "Toll", "hog_command", "watch"]

RANKS_SCORE, STARTER_SCORE = 1000, 500
_CGROUPS = Path("/sys/fs/cgroup")
_HOG = """
import time
taken, limit = [], int({limit_bytes} * 1.5)
while sum(map(len, taken)) < limit:
    taken.append(b"x" * (4 << 20))
    time.sleep(0.01)
time.sleep(600)
"""


class MemoryGroup:
    """The memory cgroup of a process on this host, version 1 or 2; `directory` is None when none can be seen."""

    def __init__(self, pid: int) -> None:
        self.directory, self._events, self._limit = _find(pid)
        self.pids = self._pids()

    def limit_bytes(self) -> int | None:
        """What the kernel enforces; None when that is nothing, or cannot be read."""
        return None if self.directory is None else _number(self.directory / self._limit)

    def kills(self) -> int | None:
        """How often the OOM killer has struck in it; None once the group is gone."""
        if self.directory is None:
            return None
        with contextlib.suppress(OSError, ValueError):
            for line in (self.directory / self._events).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return None

    def offer(self, starter: int) -> None:
        """Make the ranks the kernel's first choice, and what started them the next."""
        for pid in self.pids:
            with contextlib.suppress(OSError):
                score = STARTER_SCORE if pid == starter else RANKS_SCORE
                Path(f"/proc/{pid}/oom_score_adj").write_text(str(score))

    def _pids(self) -> tuple[int, ...]:
        if self.directory is None:
            return ()
        try:
            return tuple(map(int, (self.directory / "cgroup.procs").read_text().split()))
        except (OSError, ValueError):
            return ()


def hog_command(python: str, limit_bytes: int) -> tuple[str, ...]:
    """A program that takes half as much again as the limit: without a limit it must not take the host's memory."""
    return (python, "-S", "-c", _HOG.format(limit_bytes=limit_bytes))


class Toll(NamedTuple):
    """kills: by the kernel's count, None when it cannot be read. of_job: those of them that the job's ranks fell to."""

    kills: int | None
    of_job: int


def watch(group: MemoryGroup, starter: int, is_over: Callable[[float], bool], *, deadline_s: float) -> Toll:
    """Count until the container is over or the deadline has passed. is_over waits up to so many seconds.

    A process of the job counts as killed if it went after the kernel's first kill, and before what had started it.
    """
    kills, of_job = group.kills(), 0
    living = {pid for pid in group.pids if pid != starter and _lives(pid)}
    until_s = time.monotonic() + deadline_s
    over = False
    while not over and time.monotonic() < until_s:
        over = is_over(0.01)
        now, left = group.kills(), {pid for pid in living if _lives(pid)}
        if now is not None:
            kills = max(now, kills or 0)
        if kills and _lives(starter):  # asked last: a container that is over takes all of them with it
            of_job += len(living) - len(left)
        living = left
    return Toll(kills, min(of_job, kills or 0))


def _lives(pid: int) -> bool:
    """Not gone, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def _find(pid: int) -> tuple[Path | None, str, str]:
    """(directory, the file of its events, the file of its limit)."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None, "", ""
    for line in sorted(lines, key=lambda line: line.startswith("0::")):  # a hybrid host has the memory in version 1
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        own = str(PurePosixPath(path)).lstrip("/")
        if "memory" in controllers.split(","):
            directory = _CGROUPS / "memory" / own
            if directory.is_dir():
                return directory, "memory.oom_control", "memory.limit_in_bytes"
        elif not controllers and (_CGROUPS / own / "memory.events").exists():
            return _CGROUPS / own, "memory.events", "memory.max"
    return None, "", ""


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
