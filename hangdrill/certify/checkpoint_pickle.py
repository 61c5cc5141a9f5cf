"""Walk over the opcodes of a pickle before it is read: whatever it says, reading it then takes bounded memory.

`pickle` believes a file: an index of four bytes makes it allocate 64 GB, and one byte makes a set of two hundred. Here
nothing is made. An index must be one that a pickler could have come to, an argument must lie within the file, and what
all opcodes could make is estimated.
"""

import pickle
import pickletools
from typing import NamedTuple

__all__ = ["MOST_MADE_BYTES", "PickleTrouble", "check_pickle"]

MOST_MADE_BYTES = 8 << 30
"""What the values may take. Those of torch are estimated at 26 times their file, and take half of it: what torch wrote
is read up to some 300 MB."""
MADE_BYTES = {
    "EMPTY_SET": 216, "FROZENSET": 216, "EMPTY_DICT": 128, "DICT": 128, "EMPTY_LIST": 88, "LIST": 88,
    "NEWOBJ": 240, "NEWOBJ_EX": 240, "REDUCE": 240, "OBJ": 240, "INST": 240, "GLOBAL": 64, "STACK_GLOBAL": 64,
    "BUILD": 64, "SETITEM": 64, "BYTEARRAY8": 80, "APPEND": 16, "MARK": 16, "MEMOIZE": 16, "PUT": 16, "BINPUT": 16,
    "LONG_BINPUT": 16,
}  # fmt: skip
"""By opcode, with its share of what it is put into. Every other makes a value of a hundred bytes at most."""
OTHER_BYTES = 60
AGAIN_BYTES = 8
"""Of one that only names what is there."""
AGAIN = frozenset(
    {"GET", "BINGET", "LONG_BINGET", "DUP", "NONE", "NEWTRUE", "NEWFALSE", "EMPTY_TUPLE", "FRAME", "PROTO"}
)
LENGTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
"""How many bytes hold the length of an argument that follows it."""
INDEX_BYTES = {"BINPUT": 1, "LONG_BINPUT": 4}
LINES = {"GLOBAL": 2, "INST": 2}


class PickleTrouble(Exception):
    """It must not be read; says why. is_cut: its end is missing. is_too_large: nothing else is wrong with it."""

    def __init__(self, why: str, *, is_cut: bool = False, is_too_large: bool = False) -> None:
        super().__init__(why)
        self.is_cut, self.is_too_large = is_cut, is_too_large


class _Opcode(NamedTuple):
    """fixed: bytes of its argument, if it always has as many, and nothing else is to be looked at; else -1."""

    name: str
    fixed: int
    length_bytes: int
    lines: int
    made: int


def _opcode(info: pickletools.OpcodeInfo) -> _Opcode:
    size = info.arg.n if info.arg is not None else 0
    plain = size >= 0 and info.name not in INDEX_BYTES and info.name != "STOP"
    return _Opcode(
        name=info.name,
        fixed=size if plain else -1,
        length_bytes=LENGTHS.get(size, 0),
        lines=LINES.get(info.name, 1) if size == pickletools.UP_TO_NEWLINE else 0,
        made=MADE_BYTES.get(info.name, AGAIN_BYTES if info.name in AGAIN else OTHER_BYTES),
    )


_OPCODES = {ord(info.code): _opcode(info) for info in pickletools.opcodes}
_QUICK = [(one.fixed, one.made) if (one := _OPCODES.get(code)) else (-1, 0) for code in range(256)]


def check_pickle(data: bytes) -> None:
    """Raises PickleTrouble."""
    at, end, seen, made = 0, len(data), 0, 0
    quick = _QUICK
    while at < end:
        seen += 1
        fixed, size = quick[data[at]]
        made += size
        if fixed >= 0:
            at += 1 + fixed
            continue
        if data[at] == pickle.STOP[0]:
            return _check_made(made)
        following = _after(data, at, seen)
        made += following - at
        at = following
    raise PickleTrouble("it is cut", is_cut=True)


def _check_made(made: int) -> None:
    if made > MOST_MADE_BYTES:
        most = f"{MOST_MADE_BYTES / (1 << 30):.3g}"
        why = f"its values would take some {made / (1 << 30):.3g} GB of memory, and hangdrill takes {most} at most"
        raise PickleTrouble(why, is_too_large=True)


def _after(data: bytes, at: int, seen: int) -> int:
    """Where the opcode after this one begins, whose argument is looked at. seen: how many opcodes there were."""
    opcode = _OPCODES.get(data[at])
    if opcode is None:
        raise PickleTrouble(f"byte {at} is no opcode: {data[at]:#04x}")
    if opcode.name in INDEX_BYTES:
        following = at + 1 + INDEX_BYTES[opcode.name]
        _check_index(int.from_bytes(data[at + 1 : following], "little"), at, seen)
        return following
    if opcode.length_bytes:
        begin = at + 1 + opcode.length_bytes
        following = begin + int.from_bytes(data[at + 1 : begin], "little")
    else:
        following = _after_lines(data, at + 1, opcode.lines)
        if opcode.name == "PUT":
            _check_index(_number(data[at + 1 : following - 1], at), at, seen)
    if following > len(data):
        raise PickleTrouble(f"what byte {at} begins goes beyond the end", is_cut=not data.endswith(pickle.STOP))
    return following


def _after_lines(data: bytes, at: int, lines: int) -> int:
    for _ in range(lines):
        at = data.find(b"\n", at) + 1
        if not at:
            raise PickleTrouble("a line has no end", is_cut=not data.endswith(pickle.STOP))
    return at


def _number(text: bytes, at: int) -> int:
    if not text.isdigit() or len(text) > len(str(1 << 64)):
        raise PickleTrouble(f"byte {at} stores at an index that is no number")
    return int(text)


def _check_index(index: int, at: int, seen: int) -> None:
    """A pickler counts what it stores from 0; nothing can be stored before it was made."""
    if index > seen:
        raise PickleTrouble(f"byte {at} stores value {index}, and there were not so many before it")
