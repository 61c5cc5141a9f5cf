"""Look at where native dumps would go: permissions, mount table, space, old files. Nothing is created or written.

Whether a directory can be written is asked of the kernel (`access`), not tried; quotas and network failures that only
a write would meet are not seen.
"""

import itertools
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from hangdrill.preflight.surroundings import Place
from hangdrill.preflight.variables import value_of

__all__ = ["look_at_place", "mount_of", "native_prefix"]

MOST_FILES = 10_000
DEFAULT_NAME = "torch/comm_lib_trace_rank_"


def native_prefix(environ: Mapping[str, str]) -> tuple[str, str]:
    """The prefix torch would use, and what chooses it."""
    name, text = value_of("TORCH_FR_DUMP_TEMP_FILE", environ)
    if name:
        return text, name
    cache = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME') or '/tmp'}/.cache"
    return f"{cache}/{DEFAULT_NAME}", "torch's default"


def look_at_place(
    prefix: str,
    chosen_by: str,
    *,
    cwd: Path,
    umask: int,
    made_by_hangdrill: bool = False,
    mounts: Path = Path("/proc/self/mountinfo"),
) -> Place:
    """The facts of the directory that `prefix` lies in, from this host and this user."""
    directory = Path(os.path.normpath(cwd / os.path.dirname(prefix)))  # noqa: PTH120  # "fr/" is the directory fr
    seen = _nearest(directory) if made_by_hangdrill else directory
    exists = _exists(seen)
    system, mount_point, is_read_only = mount_of(_nearest(seen), mounts)
    is_directory = exists and seen.is_dir()
    return Place(
        prefix=prefix,
        directory=str(directory),
        chosen_by=chosen_by,
        made_by_hangdrill=made_by_hangdrill,
        exists=exists,
        is_directory=is_directory,
        writable=is_directory and not is_read_only and os.access(seen, os.W_OK | os.X_OK),
        file_system=system,
        mount_point=mount_point,
        free_bytes=_free_bytes(_nearest(seen)),
        others_can_read=is_directory and _others_can_read(seen, umask),
        old_files=_old_files(directory, Path(prefix).name) if is_directory and prefix else 0,
        names_a_directory=bool(prefix) and not prefix.endswith("/") and (cwd / prefix).is_dir(),
    )


def mount_of(path: Path, mounts: Path) -> tuple[str | None, str, bool]:
    """File system, mount point, and whether it is read-only, of the mount that holds `path`; the last one counts."""
    try:
        real, text = path.resolve(), mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None, "", False
    best: tuple[str | None, str, bool] = (None, "", False)
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(rest) < 3:
            continue
        point = _unescaped(fields[4])
        if real.is_relative_to(point) and len(point) >= len(best[1]):
            best = (rest[0], point, "ro" in fields[5].split(",") or "ro" in rest[2].split(","))
    return best


def _unescaped(text: str) -> str:
    """The mount table writes a space as \\040."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _nearest(path: Path) -> Path:
    """The path itself, or its nearest parent that exists."""
    return next(each for each in (path, *path.parents) if _exists(each))


def _free_bytes(path: Path) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _others_can_read(directory: Path, umask: int) -> bool | None:
    """torch writes 0666 less the umask; others get at a file if they may enter every directory on the way."""
    if umask & stat.S_IROTH:
        return False
    try:
        return all(each.stat().st_mode & stat.S_IXOTH for each in (directory.resolve(), *directory.resolve().parents))
    except OSError:
        return None


def _old_files(directory: Path, start: str) -> int:
    """Files called start + digits."""
    try:
        names = (entry.name for entry in itertools.islice(os.scandir(directory), MOST_FILES))
        return sum(name.startswith(start) and name[len(start) :].isdigit() for name in names)
    except OSError:
        return 0
