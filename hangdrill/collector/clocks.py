"""By how much a rank's clock is ahead of this process's, from the rank's facts file.

The file holds the rank's own time of writing, and the file system gave it another one; a file of our own beside it says
what that file system's clock makes of our time. So three clocks (rank, file server, this process) come out right. It is
off by what passes between taking a time and writing it, on a busy host some tenths of a second.
"""

import os
import tempfile
import time
from pathlib import Path

import msgspec

__all__ = ["SAME_NS", "ahead_of_this_clock_ns", "file_clock_ahead_ns"]

SAME_NS = 1_000_000_000
"""Clocks that differ by less are taken for the same: less cannot be told from a busy host."""


class _Written(msgspec.Struct, frozen=True):
    written_ns: int = 0


def ahead_of_this_clock_ns(facts_file: Path) -> int | None:
    """None when the file is not there, or an agent wrote it that does not say when."""
    try:
        written_ns = msgspec.json.decode(facts_file.read_bytes(), type=_Written).written_ns
        modified_ns = facts_file.stat().st_mtime_ns
    except (OSError, msgspec.DecodeError):
        return None
    file_clock_ns = file_clock_ahead_ns(facts_file.parent)
    return written_ns - modified_ns + file_clock_ns if written_ns and file_clock_ns is not None else None


def file_clock_ahead_ns(directory: Path) -> int | None:
    """By how much the clock that gives times to files there is ahead of ours; None when nothing can be written."""
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".clock.") as file:
            before_ns = time.time_ns()
            file.write(b"0")
            file.flush()
            return os.fstat(file.fileno()).st_mtime_ns - before_ns
    except OSError:
        return None
