"""Reads a tar, plain or gzipped, from front to back: names and bytes, never a file, a link or a mode on this host.

Written out rather than left to `tarfile`, because every length in the file is a stranger's: each is bounded here before
anything is read, and no header can send the reader back. A member that is no plain file is handed out without bytes.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO

import msgspec

__all__ = ["MAX_RATIO", "MAX_TOTAL_BYTES", "BadArchive", "Member", "members"]

MAX_TOTAL_BYTES = 64 * 1024**3
"""Unpacked, of a whole archive: 16384 ranks with 4 MB each."""
MAX_RATIO = 400
"""Unpacked to packed bytes, once FREE_BYTES are unpacked; gzip can do 1032, dumps come to about 40."""
FREE_BYTES = 256 * 1024**2
MAX_NAME_BYTES = 4096
_BLOCK = 512
_CHUNK = 1024 * 1024
_FILES = b"07\0"


class BadArchive(Exception):
    """The archive cannot be read on; says why."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One member. read(n): its first n bytes (once, and only before the next member is asked for)."""

    name: str
    is_file: bool
    size: int
    read: Callable[[int], bytes]


def members(file: BinaryIO) -> Iterator[Member]:
    """All members of the tar that begins at the file's start. Raises BadArchive where it is damaged or cut."""
    file.seek(0)
    source = _Source(file)
    name, size = "", None
    while True:
        header = source.take(_BLOCK, "a header")
        if not header.strip(b"\0"):
            return
        _check(header)
        length = _number(header[124:136])
        sort = header[156:157]
        if sort in {b"L", b"x"}:
            data = source.take(_bounded(length), "a long name")
            source.skip(-length % _BLOCK)
            if sort == b"L":
                name = _text(data)
            else:
                name, size = _pax(data, name, size)
            continue
        if sort in {b"K", b"g"}:
            source.skip(length + -length % _BLOCK)
            continue
        if size is not None:
            length = size
        source.left = length
        whole = name or _name(header)
        yield Member(name=whole, is_file=sort in _FILES and not whole.endswith("/"), size=length, read=source.read)
        source.skip(source.left + -length % _BLOCK)
        name, size = "", None


class _Source:
    """The unpacked bytes, counted. left: of the member that is being read."""

    def __init__(self, file: BinaryIO) -> None:
        self.packed = file
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        # GzipFile reads like a binary file, but is not typed as one.
        self.file: BinaryIO = gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[assignment] # it reads as a BinaryIO does
        self.total = 0
        self.left = 0

    def read(self, size: int) -> bytes:
        """The next bytes of the member, at most `size`; raises BadArchive if the archive ends before."""
        data = self._some(min(size, self.left))
        self.left -= len(data)
        return data

    def take(self, size: int, what: str) -> bytes:
        data = self._some(size)
        if len(data) < size:
            raise BadArchive(f"it is cut at {what}, {self.total} bytes (unpacked) from its start")
        return data

    def skip(self, size: int) -> None:
        while size > 0:
            size -= len(self.take(min(size, _CHUNK), "a member"))

    def _some(self, size: int) -> bytes:
        """Up to `size` bytes, fewer only at the end. What came before damage is not lost: it is handed out first."""
        parts = []
        with suppress(_Ended):
            while size > 0:
                part = self._read(min(size, _CHUNK))
                parts.append(part)
                size -= len(part)
        return b"".join(parts)

    def _read(self, size: int) -> bytes:
        try:
            data = self.file.read(size)
        except (EOFError, OSError, zlib.error, ValueError) as problem:
            raise _Ended from problem
        if not data:
            raise _Ended
        self.total += len(data)
        if self.total > MAX_TOTAL_BYTES:
            raise BadArchive(f"it unpacks to more than {MAX_TOTAL_BYTES} bytes")
        if self.total > FREE_BYTES and self.total > MAX_RATIO * max(self.packed.tell(), 1):
            raise BadArchive(f"it unpacks to more than {MAX_RATIO} times its size, as no dumps do")
        return data


class _Ended(Exception):
    """No more bytes: the end, or damage."""


def _check(header: bytes) -> None:
    told = _number(header[148:156])
    if told != sum(header[:148]) + 8 * 32 + sum(header[156:]):
        raise BadArchive("a header's checksum is wrong: it is no tar, or it is damaged")


def _number(field: bytes) -> int:
    """Octal digits, or GNU's binary number; never negative."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    try:
        number = int(digits or b"0", 8)
    except ValueError as problem:
        raise BadArchive("a header's number is none: it is no tar, or it is damaged") from problem
    if number < 0:
        raise BadArchive("a header's number is negative")
    return number


def _bounded(length: int) -> int:
    if length > MAX_NAME_BYTES:
        raise BadArchive(f"a name of {length} bytes")
    return length


def _name(header: bytes) -> str:
    name = _text(header[:100])
    if header[257:263] == b"ustar\0" and (prefix := _text(header[345:500])):
        return f"{prefix}/{name}"
    return name


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("utf-8", "replace")


def _pax(data: bytes, name: str, size: int | None) -> tuple[str, int | None]:
    """The path and the size that a pax header gives: records "<length> <key>=<value>\\n"."""
    at = 0
    while at < len(data):
        digits, space, _ = data[at : at + 20].partition(b" ")
        if not space or not digits.isdigit() or not len(digits) < int(digits) <= len(data) - at:
            raise BadArchive("a pax header that is damaged")
        key, _, value = data[at + len(digits) + 1 : at + int(digits)].rstrip(b"\n").partition(b"=")
        at += int(digits)
        if key == b"path":
            name = _text(value)
        elif key == b"size" and value.isdigit() and len(value) < 20:
            size = int(value)
    return name, size
