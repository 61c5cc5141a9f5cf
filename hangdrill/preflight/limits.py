"""Two more facts of this host: does anything keep its clock right, and how much memory may this process take?"""

import contextlib
import ctypes
from pathlib import Path, PurePosixPath

__all__ = ["clock_is_synchronised", "memory_limit_bytes"]

STA_UNSYNC = 0x40
TIME_ERROR = 5
NO_LIMIT_BYTES = 1 << 60
"""The kernel writes a limit that is none as a huge number."""


class _Timex(ctypes.Structure):
    """The beginning of the kernel's struct timex, and room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def clock_is_synchronised() -> bool | None:
    """What the kernel says (adjtimex, which reads with modes 0); None where it may not be asked."""
    try:
        ask = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    told = _Timex()
    state = ask(ctypes.byref(told))
    return None if state < 0 else state != TIME_ERROR and not told.status & STA_UNSYNC


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """The least limit of this process's cgroup and those above it; None where there is none, or none can be read."""
    found: list[int] = []
    for base, path, name in _cgroups(root):
        for group in (path, *path.parents):
            with contextlib.suppress(OSError, ValueError):
                found.append(int((base / str(group).lstrip("/") / name).read_text()))
    return min((each for each in found if each < NO_LIMIT_BYTES), default=None)


def _cgroups(root: Path) -> list[tuple[Path, PurePosixPath, str]]:
    """(where it is mounted, this process's group, the limit's file) of both versions."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            found.append((root / "sys/fs/cgroup", PurePosixPath(path), "memory.max"))
        elif "memory" in controllers.split(","):
            found.append((root / "sys/fs/cgroup/memory", PurePosixPath(path), "memory.limit_in_bytes"))
    return found
