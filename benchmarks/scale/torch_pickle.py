"""Plain values to the very bytes that torch's recorder writes for them (torch/csrc/jit/serialization/pickler.cpp).

Python's own pickle is no stand-in: it memoizes every container, torch only those that are held more than once, which
are the stack frames that come again and, to no use, the whole dump. Strings are memoized by value, frames by identity:
two equal frames may still be two.
"""

import struct
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["dump_bytes"]


def dump_bytes(dump: Mapping[str, Any]) -> bytes:
    """A whole dump: what `pickle.load` of a native file gave, as the bytes of that file."""
    entries = dump.get("entries", ())
    uses = Counter(id(frame) for entry in entries for frame in entry.get("frames", ()))
    writer = TorchPickle({frame for frame, count in uses.items() if count > 1})
    writer.push(dump)
    return writer.finish()


class TorchPickle:
    """The bytes so far, and what is memoized under which number."""

    def __init__(self, shared_frames: set[int]) -> None:
        self._out = bytearray(b"\x80\x02")
        self._shared_frames = shared_frames  # their id()
        self._strings: dict[str, bytes] = {}
        self._frames: dict[int, bytes] = {}
        self._push_by_type: dict[type, Callable[[Any], None]] = {
            bool: self._bool,
            dict: self._dict,
            float: self._float,
            int: self._int,
            list: self._list,
            str: self._str,
            tuple: self._tuple,
            type(None): self._none,
        }

    def push(self, value: object) -> None:
        """Append one value."""
        self._push_by_type[type(value)](value)

    def finish(self) -> bytes:
        """The end: torch holds the outermost dict twice, so that it is memoized too."""
        self._memoize()
        return bytes(self._out) + b"."

    def _memoize(self) -> bytes:
        """Number what was just written; the bytes that fetch it again."""
        number = len(self._strings) + len(self._frames)
        short = number < 256
        self._out += struct.pack("<cB", b"q", number) if short else struct.pack("<cI", b"r", number)
        return struct.pack("<cB", b"h", number) if short else struct.pack("<cI", b"j", number)

    def _str(self, value: str) -> None:
        known = self._strings.get(value)
        if known is not None:
            self._out += known
            return
        encoded = value.encode("utf-8", "surrogateescape")
        self._out += struct.pack("<cI", b"X", len(encoded)) + encoded
        self._strings[value] = self._memoize()

    def _int(self, value: int) -> None:
        if 0 <= value < 256:
            self._out += struct.pack("<cB", b"K", value)
        elif 0 <= value < 65536:
            self._out += struct.pack("<cH", b"M", value)
        elif -(2**31) <= value < 2**31:
            self._out += struct.pack("<ci", b"J", value)
        else:
            self._out += struct.pack("<cBq", b"\x8a", 8, value)

    def _bool(self, value: bool) -> None:
        self._out += b"\x88" if value else b"\x89"

    def _none(self, _: None) -> None:
        self._out += b"N"

    def _float(self, value: float) -> None:
        self._out += struct.pack(">cd", b"G", value)

    def _list(self, values: list[Any]) -> None:
        self._out += b"]("
        for value in values:
            self.push(value)
        self._out += b"e"

    def _tuple(self, values: tuple[Any, ...]) -> None:
        """Up to three members; a dump has only pairs."""
        for value in values:
            self.push(value)
        self._out += (b")", b"\x85", b"\x86", b"\x87")[len(values)]

    def _dict(self, values: Mapping[str, Any]) -> None:
        self._out += b"}("
        for key, value in values.items():
            self._str(key)
            if key == "frames":
                self._stack(value)
            else:
                self.push(value)
        self._out += b"u"

    def _stack(self, frames: list[dict[str, Any]]) -> None:
        self._out += b"]("
        for frame in frames:
            known = self._frames.get(id(frame))
            if known is not None:
                self._out += known
                continue
            self._dict(frame)
            if id(frame) in self._shared_frames:
                self._frames[id(frame)] = self._memoize()
        self._out += b"e"
