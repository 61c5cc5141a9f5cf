"""Dumps in a directory of this host, or one file. Nothing here waits: what is no regular file is never opened."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.places import MAX_DEPTH, MAX_SMALL_BYTES, DumpJob, IgnoredFile, Listing, check_count
from hangdrill.recorder.printable import printable
from hangdrill.recorder.sniff import HEAD_BYTES, Kind, kind_of

__all__ = ["LocalPlace", "read_regular"]

_SORTS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
}


class LocalPlace:
    """A directory (entered MAX_DEPTH deep, not by links) or one regular file. Raises DumpError for anything else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = printable(str(path))
        self.single = not stat.S_ISDIR(_mode_of(path))
        # Joined as text: for a hundred thousand names, pathlib takes longer than all the rest.
        self._prefix = str(path) if self.single else f"{str(path).rstrip('/')}/"

    def listing(self) -> Listing:
        """All regular files below, links to files included; and the rest."""
        if self.single:
            return Listing(names=(self.path.name,))
        names: list[str] = []
        ignored: list[IgnoredFile] = []
        levels: list[tuple[str, int]] = [("", 0)]
        while levels:
            below, depth = levels.pop()
            for entry in self._entries(below, ignored):
                name = f"{below}{entry.name}"
                reason = _reason(entry, depth)
                if reason == "enter":
                    levels.append((f"{name}/", depth + 1))
                elif reason:
                    ignored.append(IgnoredFile(path=self.shown(name), reason=reason))
                else:
                    names.append(name)
                check_count(len(names) + len(ignored), self.where)
        return Listing(names=tuple(sorted(names)), ignored=tuple(sorted(ignored, key=lambda one: one.path)))

    def kind(self, name: str) -> Kind:
        """What the file begins like; unknown when it cannot be opened."""
        try:
            return kind_of(read_regular(Path(self._path(name)), HEAD_BYTES, whole=False))
        except DumpError:
            return "unknown"

    def small(self, name: str) -> bytes:
        """The whole file."""
        return read_regular(Path(self._path(name)), MAX_SMALL_BYTES)

    def shown(self, name: str) -> str:
        """The path that the user can type."""
        return printable(self._path(name))

    def jobs(self, wanted: Iterable[tuple[str, int]]) -> Iterator[DumpJob]:
        """By path: whoever reads the job opens the file."""
        for name, rank in wanted:
            yield DumpJob(rank=rank, shown=self.shown(name), path=self._path(name))

    def close(self) -> None:
        """Nothing is open."""

    def _path(self, name: str) -> str:
        return self._prefix if self.single else self._prefix + name

    def _entries(self, below: str, ignored: list[IgnoredFile]) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.path / below) as entries:
                return list(entries)
        except OSError as problem:
            text = f"the directory cannot be read: {problem.strerror}"
            if below:  # others may tell enough
                ignored.append(IgnoredFile(path=self.shown(below), reason=text))
                return []
            raise DumpError(text, where=self.where, next_step="check its permissions") from problem


def read_regular(path: Path, limit: int, *, whole: bool = True) -> bytes:
    """The bytes of a regular file: all of them (then more than `limit` is an error), or the first. Raises DumpError."""
    where = printable(str(path))
    try:
        if not stat.S_ISREG(mode := path.stat().st_mode):
            raise _not_a_file(mode, where)
        # Not waiting, in case it has become a FIFO since: it is looked at again once it is open.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(handle, "rb") as file:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                raise _not_a_file(facts.st_mode, where)
            if whole and facts.st_size > limit:
                raise _too_big(facts.st_size, limit, where)
            data = file.read(limit + whole) or b""
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise DumpError(
            f"it cannot be read: {reason}", where=where, next_step="run hangdrill as the owner of the dumps"
        ) from problem
    if whole and len(data) > limit:
        raise _too_big(len(data), limit, where)
    return data


def _mode_of(path: Path) -> int:
    """The mode of a path that is a directory or a regular file. Raises DumpError."""
    where = printable(str(path))
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as problem:
        raise DumpError("there is no such file or directory", where=where, next_step="check the path") from problem
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise DumpError(f"it cannot be looked at: {reason}", where=where, next_step="check the path") from problem
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise _not_a_file(mode, where)
    return mode


def _reason(entry: os.DirEntry[str], depth: int) -> str:
    """Why an entry is passed over; "enter" for a directory to be entered, empty for a file."""
    try:
        if entry.is_dir(follow_symlinks=False):
            if entry.name.startswith("."):
                return "a temporary or hidden directory"
            return "enter" if depth < MAX_DEPTH else f"a directory more than {MAX_DEPTH} levels down"
        if entry.is_file():
            return ""
        if entry.is_symlink():
            return "a link to a directory, or to nothing that can be read"
        return f"{_sort(entry.stat(follow_symlinks=False).st_mode)}, not a file"
    except OSError as problem:
        return f"it cannot be looked at: {problem.strerror}"


def _sort(mode: int) -> str:
    return _SORTS.get(stat.S_IFMT(mode), "something else")


def _not_a_file(mode: int, where: str) -> DumpError:
    return DumpError(f"it is {_sort(mode)}, not a file", where=where, next_step="name a dump or a directory of dumps")


def _too_big(size: int, limit: int, where: str) -> DumpError:
    return DumpError(
        f"{size} bytes is more than a dump may have ({limit})",
        where=where,
        next_step="check that this is a flight-recorder file; lower TORCH_FR_BUFFER_SIZE if it is",
    )
