"""Dumps on another file system, by a URL that fsspec knows: s3://, gs://, memory:// and what else is installed."""

import posixpath
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from hangdrill.model.errors import HangdrillError, MachineError, UsageError
from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.pickle_walk import MAX_DUMP_BYTES
from hangdrill.recorder.places import MAX_DEPTH, MAX_SMALL_BYTES, DumpJob, IgnoredFile, Listing, check_count
from hangdrill.recorder.printable import printable
from hangdrill.recorder.sniff import HEAD_BYTES, Kind, kind_of

__all__ = ["RemotePlace", "open_remote"]


class RemotePlace:
    """A directory or a file on another file system. `files` is fsspec's file system, `root` the path on it."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.where = printable(url)
        self.files, self.root = _file_system(url, self.where)
        self.single = bool(_asked(lambda: self.files.isfile(self.root), self.where))

    def listing(self) -> Listing:
        """All files below, as deep as in a directory of this host."""
        if self.single:
            return Listing(names=(posixpath.basename(self.root),))
        found = _asked(lambda: self.files.find(self.root, maxdepth=MAX_DEPTH + 1, detail=True), self.where)
        if not found and not _asked(lambda: self.files.exists(self.root), self.where):
            raise DumpError("there is no such file or directory", where=self.where, next_step="check the URL")
        check_count(len(found), self.where)
        names, ignored = [], []
        for path, facts in found.items():
            name = path[len(self.root) :].lstrip("/") if path.startswith(self.root) else path.lstrip("/")
            size = facts.get("size") or 0
            if size > MAX_DUMP_BYTES:
                reason = f"{size} bytes is more than a dump may have ({MAX_DUMP_BYTES})"
                ignored.append(IgnoredFile(path=self.shown(name), reason=reason))
            else:
                names.append(name)
        return Listing(names=tuple(sorted(names)), ignored=tuple(ignored))

    def kind(self, name: str) -> Kind:
        """What the file begins like; unknown when it cannot be read."""
        try:
            return kind_of(self._read(name, HEAD_BYTES))
        except HangdrillError:
            return "unknown"

    def small(self, name: str) -> bytes:
        """The whole file."""
        return self._read(name, MAX_SMALL_BYTES)

    def shown(self, name: str) -> str:
        """The file's URL."""
        return printable(self.url if self.single else f"{self.url}/{name}")

    def jobs(self, wanted: Iterable[tuple[str, int]]) -> Iterator[DumpJob]:
        """The bytes of each, fetched when it is asked for."""
        for name, rank in wanted:
            try:
                yield DumpJob(rank=rank, shown=self.shown(name), data=self._read(name, MAX_DUMP_BYTES))
            except HangdrillError as problem:
                yield DumpJob(rank=rank, shown=self.shown(name), error=problem.what)

    def close(self) -> None:
        """fsspec keeps its connections to itself."""

    def _read(self, name: str, limit: int) -> bytes:
        path = self.root if self.single else f"{self.root.rstrip('/')}/{name}"

        def fetch() -> bytes:
            with self.files.open(path, "rb") as file:
                data: bytes = file.read(limit)
            return data

        data: bytes = _asked(fetch, self.shown(name))
        return data


def open_remote(url: str) -> BinaryIO:
    """An archive on another file system, opened for reading."""
    where = printable(url)
    files, root = _file_system(url, where)
    file: BinaryIO = _asked(lambda: files.open(root, "rb"), where)
    return file


def _file_system(url: str, where: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs

        files, root = url_to_fs(url)
    except ImportError as problem:
        raise MachineError(
            f"the package for this file system is missing: {problem}",
            where=where,
            next_step="install it beside hangdrill (s3fs for s3://, gcsfs for gs://), or copy the dumps here",
        ) from problem
    except ValueError as problem:
        raise UsageError(
            f"no file system is known by this name: {problem}", where=where, next_step="check the URL"
        ) from problem
    except Exception as problem:  # a stranger's file system may raise anything
        raise _failed(problem, where) from problem
    return files, str(root)


def _asked(question: Any, where: str) -> Any:  # noqa: ANN401 - fsspec has no types
    """The answer of a file system; whatever it raises becomes one of our errors."""
    try:
        return question()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as problem:
        raise DumpError("there is no such file or directory", where=where, next_step="check the URL") from problem
    except Exception as problem:
        raise _failed(problem, where) from problem


def _failed(problem: Exception, where: str) -> MachineError:
    text = printable(f"{type(problem).__name__}: {problem}")[:300]
    return MachineError(
        f"the file system does not answer: {text}", where=where, next_step="check the network and your credentials"
    )
