"""What a shared library needs of others, from its ELF tables (64 bit, little-endian): libraries, undefined symbols."""

import mmap
import struct
from collections.abc import Iterator

__all__ = ["needed_libraries", "undefined_symbols"]

MAGIC = b"\x7fELF\x02\x01"
DYNAMIC, DYNSYM = 6, 11
NEEDED = 1
MOST_SYMBOLS = 2_000_000


def needed_libraries(held: mmap.mmap) -> list[bytes]:
    """Names of the libraries that it is linked against. ValueError when it is no such file, or is cut."""
    found = []
    for offset, size, link in _sections(held, DYNAMIC):
        names = _section(held, link)[0]
        for at in range(offset, offset + size, 16):
            tag, value = _unpack("<QQ", held, at)
            if tag == NEEDED:
                found.append(_text(held, names + value))
    return found


def undefined_symbols(held: mmap.mmap) -> Iterator[bytes]:
    """Names of the symbols that another library must have. ValueError when it is no such file, or is cut."""
    for offset, size, link in _sections(held, DYNSYM):
        names = _section(held, link)[0]
        for at in range(offset, offset + min(size, 24 * MOST_SYMBOLS), 24):
            name, _, _, section = _unpack("<IBBH", held, at)
            if name and section == 0:
                yield _text(held, names + name)


def _sections(held: mmap.mmap, kind: int) -> Iterator[tuple[int, int, int]]:
    """(offset, size, link) of the sections of a kind."""
    if held[:6] != MAGIC:
        raise ValueError("no ELF file of 64 bits")
    (count,) = _unpack("<H", held, 60)
    for index in range(count):
        offset, size, link, found = _section(held, index)
        if found == kind:
            yield offset, size, link


def _section(held: mmap.mmap, index: int) -> tuple[int, int, int, int]:
    """(offset, size, link, kind) of one section."""
    (table,) = _unpack("<Q", held, 40)
    (width,) = _unpack("<H", held, 58)
    at = table + index * width
    _, kind, _, _, offset, size, link = _unpack("<IIQQQQI", held, at)
    return offset, size, link, kind


def _unpack(form: str, held: mmap.mmap, at: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(form, held, at)
    except struct.error as error:
        raise ValueError("the file is cut") from error


def _text(held: mmap.mmap, at: int) -> bytes:
    end = held.find(b"\0", at)
    return held[at:end] if end >= 0 else b""
