"""Everything that a hook has started, also what left its session: found as descendants of this process, and ended."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection

__all__ = ["adopt_orphans", "descendants", "end_descendants", "end_with_descendants"]

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.02
_END_S = 5.0
"""For the kernel to end what was killed."""


def adopt_orphans() -> None:
    """From now on descendants whose parent has ended become children of this process, and cannot get lost."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants(*, limit_s: float, leave: Collection[int]) -> tuple[int, ...]:
    """SIGKILL to every descendant but those in `leave`, again until none lives; those that survived the limit."""
    until_s = time.monotonic() + limit_s
    while True:
        living = [pid for pid in descendants(os.getpid()) if pid not in leave]
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not living or time.monotonic() > until_s:
            return tuple(living)
        time.sleep(_LOOK_S)  # for the kernel to end them; the limit is looked at above


def end_with_descendants(root: int) -> None:
    """SIGKILL to a process and to everything that it has started, looked up before it is gone; waits for their end."""
    ended = (root, *descendants(root))
    for pid in ended:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until_s = time.monotonic() + _END_S
    while any(_parent_of(pid) is not None for pid in ended) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)


def descendants(root: int) -> list[int]:
    """The living descendants of a process, zombies left out."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names alone
        if name.isdigit():
            found = _parent_of(int(name))
            if found is not None:
                parents[int(name)] = found
    line: set[int] = set()
    fresh = {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - line
        line |= fresh
    return sorted(line)


def _parent_of(pid: int) -> int | None:
    """None for a zombie, and for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - many small reads
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] == b"Z" else int(fields[1])
