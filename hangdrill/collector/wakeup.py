"""Wakes the collector the moment a file appears in a directory, so that a rank waits milliseconds for its ack.

inotify through the C library; where there is none, the collector's own polling interval is the answer.
"""

import ctypes
import os
import select
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

__all__ = ["DirectoryWatch"]

_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100


class DirectoryWatch:
    """Waits for new names in some directories, with a limit."""

    def __init__(self, directories: Iterable[Path]) -> None:
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._descriptors = [self._wake_reader, *_inotify(directories)]
        self._poll = select.poll()
        for descriptor in self._descriptors:
            self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds_s: float) -> None:
        """Until a name appears or somebody calls `wake`, but at most so long."""
        for descriptor, _ in self._poll.poll(max(0.0, seconds_s) * 1000):
            _drain(descriptor)

    def wake(self) -> None:
        """End the wait; from any thread, also after `close`."""
        try:
            os.write(self._wake_writer, b".")
        except OSError:
            return  # the pipe is full, so it wakes anyway; or nobody reads it any more

    def close(self) -> None:
        """Gives the descriptors back; safe to repeat. The writing end stays for threads that are late."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []

    def __enter__(self) -> "DirectoryWatch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 1 << 16):
            pass
    except BlockingIOError:
        return


def _inotify(directories: Iterable[Path]) -> list[int]:
    try:
        library = ctypes.CDLL(None, use_errno=True)
        descriptor = int(library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    except (OSError, AttributeError):
        return []
    if descriptor < 0:
        return []
    for directory in directories:
        library.inotify_add_watch(descriptor, os.fsencode(directory), _IN_CREATE | _IN_MOVED_TO)
    return [descriptor]
