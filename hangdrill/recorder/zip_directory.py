"""Looks at a zip's end record before `zipfile` does: it reads the whole directory at once, whatever its size."""

import os
from struct import Struct
from typing import BinaryIO

from hangdrill.recorder.tar_stream import BadArchive

__all__ = ["MAX_DIRECTORY_BYTES", "check_directory"]

MAX_DIRECTORY_BYTES = 8 * 1024 * 1024
"""About 80,000 names; in memory that is ten times as much."""
_END = Struct("<4s4H2LH")
_END64 = Struct("<4sQ2H2L4Q")
_LOCATOR = Struct("<4sLQL")
_TAIL = 65535 + _END.size + _LOCATOR.size


def check_directory(file: BinaryIO) -> None:
    """Raise BadArchive when there is no end record, or its directory is too big to be read."""
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _TAIL)
    file.seek(start)
    tail = file.read(_TAIL)
    at = tail.rfind(b"PK\5\6", 0, len(tail) - _END.size + 4)
    if at < 0:
        raise BadArchive("it has no directory at its end: it is no zip, or it is cut")
    length = int(_END.unpack_from(tail, at)[5])
    if at >= _LOCATOR.size and tail[at - _LOCATOR.size : at - _LOCATOR.size + 4] == b"PK\6\7":
        file.seek(min(int(_LOCATOR.unpack_from(tail, at - _LOCATOR.size)[2]), size))
        record = file.read(_END64.size)
        if len(record) < _END64.size or record[:4] != b"PK\6\6":
            raise BadArchive("its directory is damaged")
        length = int(_END64.unpack(record)[8])
    file.seek(0)
    if length > MAX_DIRECTORY_BYTES:
        raise BadArchive(f"a directory of {length} bytes is more than {MAX_DIRECTORY_BYTES}")
