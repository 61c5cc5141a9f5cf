"""Where dumps lie: a directory, one file, an archive, another file system. One small protocol, and what crosses it.

A place lists its regular files, says what each begins like, and hands out the wanted ones as jobs. A job is one file
of one rank; it is read (`hangdrill.recorder.evidence`) in this process or in another one, and shares nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.sniff import Kind

__all__ = ["MAX_DEPTH", "MAX_FILES", "MAX_SMALL_BYTES", "DumpJob", "IgnoredFile", "Listing", "Place", "check_count"]

MAX_DEPTH = 4
"""Directories below the one that was named: a directory a host, or <scenario group>/<scenario>/evidence/native."""
MAX_FILES = 1_000_000
MAX_SMALL_BYTES = 64 * 1024 * 1024
"""Of a manifest or another JSON file beside the dumps."""


class IgnoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was passed over, and why. path is as a person would write it."""

    path: str
    reason: str


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The regular files of a place, sorted, by their paths inside of it with `/`; and what is none. problem: why the
    listing ends early (an archive that is cut), empty when it is whole."""

    names: tuple[str, ...]
    ignored: tuple[IgnoredFile, ...] = ()
    problem: str = ""


class DumpJob(msgspec.Struct, frozen=True, kw_only=True):
    """One file of one rank to be read: by its path on this host, or its bytes. error: why there are no bytes; then the
    rank may be unknown too."""

    rank: int | None
    shown: str
    path: str = ""
    data: bytes = b""
    error: str = ""


class Place(Protocol):
    """Somewhere dumps lie. `single`: the user named one file, so what it is called matters less."""

    where: str
    single: bool

    def listing(self) -> Listing:
        """All files. Raises DumpError or MachineError when it cannot be looked into at all."""

    def kind(self, name: str) -> Kind:
        """What the file begins like."""

    def small(self, name: str) -> bytes:
        """The whole of a small file. Raises DumpError."""

    def shown(self, name: str) -> str:
        """The file's path for people."""

    def jobs(self, wanted: Iterable[tuple[str, int]]) -> Iterator[DumpJob]:
        """Each wanted (name, rank), in the place's own order; a file that cannot be read gives a job with an error."""

    def close(self) -> None:
        """Give back what is open."""


def check_count(count: int, where: str) -> None:
    """Raise DumpError when there are more files than anybody means."""
    if count > MAX_FILES:
        raise DumpError(f"more than {MAX_FILES} files", where=where, next_step="name the directory of the dumps")
