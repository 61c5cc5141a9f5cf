"""A path or URL -> the place it names."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from hangdrill.recorder.archives import ARCHIVES, TarPlace, ZipPlace
from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.local import LocalPlace
from hangdrill.recorder.places import Place
from hangdrill.recorder.printable import printable

__all__ = ["open_place"]

_LOCAL = ("file://", "local://")


def open_place(path: str | os.PathLike[str]) -> Place:
    """A directory, a file, an archive, or a URL of fsspec's. Raises DumpError, UsageError or MachineError."""
    text = os.fspath(path)
    for scheme in _LOCAL:
        text = text.removeprefix(scheme)
    if "://" in text:
        return _open_url(text)
    place = LocalPlace(Path(text))
    if place.single and text.endswith(ARCHIVES):
        return _archive(_opened(Path(text)), text)
    return place


def _open_url(url: str) -> Place:
    from hangdrill.recorder.remote import RemotePlace, open_remote  # fsspec is slow to import

    return _archive(open_remote(url), url) if url.endswith(ARCHIVES) else RemotePlace(url)


def _archive(file: BinaryIO, text: str) -> Place:
    place = ZipPlace if text.endswith(".zip") else TarPlace
    return place(file, printable(text))


def _opened(path: Path) -> BinaryIO:
    where = printable(str(path))
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise DumpError("it is no file", where=where, next_step="name a dump or a directory of dumps")
        return os.fdopen(handle, "rb")
    except OSError as problem:
        raise DumpError(
            f"it cannot be read: {problem.strerror}", where=where, next_step="run hangdrill as the owner of the dumps"
        ) from problem
