"""Handles on a container's tmpfs: what was written there is seen as long as one is open, also when its last process is
over and its mounts are gone; once closed, the kernel lets the memory go.
"""

import os
from pathlib import Path, PurePosixPath

from hangdrill.launchers.box import Memory

__all__ = ["MemoryHandles"]


class MemoryHandles:
    """Opened when a path on one is first asked for, while the container lives."""

    def __init__(self, places: tuple[Memory, ...]) -> None:
        self._places = places
        self._handles: dict[str, int] = {}

    def holds(self, path: str) -> bool:
        """Whether a path of the container is in memory."""
        return self._target_of(path) is not None

    def find(self, path: str, root: Path | None) -> Path | None:
        """Where this host sees it. root: the container's root as this host sees it now, None when there is none."""
        target = self._target_of(path)
        if target is None:
            return None
        if target not in self._handles and root is not None:
            try:
                self._handles[target] = os.open(f"{root}{target}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                return None
        handle = self._handles.get(target)
        return None if handle is None else Path(f"/proc/self/fd/{handle}") / PurePosixPath(path).relative_to(target)

    def close(self) -> None:
        """Let the memory go. Safe to repeat."""
        while self._handles:
            os.close(self._handles.popitem()[1])

    def _target_of(self, path: str) -> str | None:
        holding = [each.target for each in self._places if PurePosixPath(path).is_relative_to(each.target)]
        return max(holding, key=len, default=None)
