"""The processes of one node's part of a job, found by the mark in their environment, and ended. Imports no torch."""

import contextlib
import os
import signal
import time
from pathlib import Path

__all__ = ["MARK", "end_marked"]

MARK = "HANGDRILL_NODE"
TERM_S = 3.0
KILL_S = 10.0
POLL_S = 0.05


def end_marked(mark: str, *, at_once: bool) -> int:
    """SIGTERM, and SIGKILL after TERM_S or at once, until none is left; how many outlived that for KILL_S."""
    if not at_once:
        _until_gone(mark, signal.SIGTERM, TERM_S)
    return _until_gone(mark, signal.SIGKILL, KILL_S)


def _until_gone(mark: str, number: signal.Signals, limit_s: float) -> int:
    """Signal each once, also those that are started meanwhile."""
    told: set[int] = set()
    ends_s = time.monotonic() + limit_s
    while found := _marked(mark):
        for pid in found:
            if pid not in told:
                _signal(pid, mark, number)
        told |= set(found)
        if time.monotonic() > ends_s:
            break
        time.sleep(POLL_S)
    return len(found)


def _marked(mark: str) -> list[int]:
    """Those that live; a zombie has no environment any more."""
    names = os.listdir("/proc")  # noqa: PTH208 - one call, hundreds of entries
    return [int(name) for name in names if name.isdigit() and _is_marked(int(name), mark)]


def _is_marked(pid: int, mark: str) -> bool:
    with contextlib.suppress(OSError):
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _signal(pid: int, mark: str, number: signal.Signals) -> None:
    """By a handle that stays with the process, so that no stranger with the same number is hit."""
    with contextlib.suppress(ProcessLookupError):
        try:
            handle = os.pidfd_open(pid)
        except (AttributeError, OSError):  # a kernel that has none
            os.kill(pid, number)
            return
        try:
            if _is_marked(pid, mark):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)
