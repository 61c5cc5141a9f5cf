"""Looking at the directory of native dumps: is it there, writable, how full, on what file system? Facts, no judgement.

A job in a container sees other files than this host. So the look goes through the root of one of its processes, which
the kernel shows below /proc to its owner; when none lives, to where this host keeps the directory.
"""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from hangdrill.model.run import PlaceFacts
from hangdrill.preflight.place import mount_of

__all__ = ["look_at_place"]

MOST_NAMES = 64
MOST_ENTRIES = 10_000


def look_at_place(
    prefix: str, *, when: str, process: int | None, locate: Callable[[str], Path | None] = Path
) -> PlaceFacts:
    """The facts of the directory in which dumps called `prefix` + rank lie, as the job names it."""
    directory, _, start = prefix.rpartition("/")
    directory = directory or "/"
    if process is not None:
        root = Path(f"/proc/{process}/root")
        if os.access(root, os.X_OK):
            seen = _look(Path(f"{root}{directory}"), start, when=when, path=directory)
            kind, point, read_only = mount_of(Path(directory), Path(f"/proc/{process}/mountinfo"))
            return replace(seen, file_system=kind or "", mount_point=point, read_only=read_only or bool(seen.read_only))
    place = locate(directory)
    if place is None:
        return PlaceFacts(when=when, path=directory)
    seen = _look(place, start, when=when, path=directory)
    if place == Path(directory):
        kind, point, _ = mount_of(place, Path("/proc/self/mountinfo"))
        return replace(seen, file_system=kind or "", mount_point=point)
    return replace(seen, writable=None, read_only=None)  # the job may see it mounted in another way


def _look(place: Path, start: str, *, when: str, path: str) -> PlaceFacts:
    """What stat, access and statvfs say; a directory that is missing has its file system's facts from its parent."""
    try:
        exists = place.exists()
    except OSError:
        return PlaceFacts(when=when, path=path)
    is_directory = exists and place.is_dir()
    nearest = next(each for each in (place, *place.parents) if each.exists())
    try:
        space = os.statvfs(nearest)
    except OSError:
        return PlaceFacts(when=when, path=path, exists=exists, is_directory=is_directory)
    return PlaceFacts(
        when=when,
        path=path,
        exists=exists,
        is_directory=is_directory,
        writable=is_directory and os.access(place, os.W_OK | os.X_OK),
        read_only=bool(space.f_flag & os.ST_RDONLY),
        free_bytes=space.f_bavail * space.f_frsize,
        total_bytes=space.f_blocks * space.f_frsize,
        names=_names(place, start) if is_directory else (),
    )


def _names(directory: Path, start: str) -> tuple[str, ...]:
    try:
        with os.scandir(directory) as entries:
            names = sorted(
                entry.name for entry in itertools.islice(entries, MOST_ENTRIES) if entry.name.startswith(start)
            )
    except OSError:
        return ()
    return tuple(names[:MOST_NAMES])
