"""Reads the pickle of a recorder without `pickle`: plain values only, bounded, and up to the byte where it is cut.

The recorder writes dicts with text keys, lists, tuples, text, numbers, booleans and None. This walk knows exactly
those opcodes. An opcode that could find a name, call something or set state (global, reduce, build, persistent id,
extension) makes it refuse the file. Anything else that is wrong (the end of the data, an unknown opcode, a key that
is not text) ends the walk there, and what was complete before that byte is handed back.

It keeps the memo in a dict, so that a huge index costs nothing; it checks lengths before it copies; it never
recurses, so depth cannot exhaust the stack; and values may share or contain each other, which is why readers of the
tree (`hangdrill.recorder.dump_shape`) work by fixed depth and remember what they have read.
"""

from struct import Struct, error
from typing import Any, NoReturn

import msgspec

from hangdrill.recorder.errors import DumpError, UnsafeDumpError
from hangdrill.recorder.unfolding import check_unfolded

__all__ = [
    "MAX_DEPTH",
    "MAX_DUMP_BYTES",
    "Damaged",
    "PickleTree",
    "walk_head",
    "walk_part",
    "walk_pickle",
    "walk_tail",
]

MAX_DUMP_BYTES = 64 * 1024 * 1024
"""A dump of the default 2000 operations with stacks has about 3 MB."""
MAX_DEPTH = 32
"""Open containers at once; the recorder needs 5."""
MAX_LONG_BYTES = 32
"""Of one integer; the recorder needs 8."""
MAX_PROTOCOL = 5
_UNSAFE = {
    0x63: "GLOBAL", 0x93: "STACK_GLOBAL", 0x69: "INST", 0x6F: "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX",
    0x52: "REDUCE", 0x62: "BUILD", 0x50: "PERSID", 0x51: "BINPERSID", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4",
    0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}  # fmt: skip

_INT32 = Struct("<i").unpack_from
_UINT32 = Struct("<I").unpack_from
_UINT16 = Struct("<H").unpack_from
_UINT64 = Struct("<Q").unpack_from
_FLOAT64 = Struct(">d").unpack_from


_CUT = "the file is cut"


class PickleTree(msgspec.Struct, frozen=True, kw_only=True):
    """The plain value in a pickle.

    cut_at_byte: None when the pickle was whole, else the byte at which reading had to end; `reason` says why.
    open_ids: `id()` of the containers that were still being filled there; they are in `value`, but not complete.
    """

    value: object
    cut_at_byte: int | None = None
    reason: str = ""
    open_ids: frozenset[int] = frozenset()


class Damaged(Exception):
    """The walk cannot go on; says why."""


def walk_pickle(data: bytes, *, where: str = "") -> PickleTree:
    """The plain value in `data`, whole or up to where it is damaged. Raises UnsafeDumpError; DumpError if too big."""
    if len(data) > MAX_DUMP_BYTES:
        raise DumpError(
            f"{len(data)} bytes is more than a dump may have ({MAX_DUMP_BYTES})",
            where=where,
            next_step="check that this is a flight-recorder file; lower TORCH_FR_BUFFER_SIZE if it is",
        )
    check_unfolded(data, where)
    walk = _Walk(data, where)
    try:
        value = walk.run()
    except (Damaged, error, IndexError, KeyError, UnicodeDecodeError) as problem:
        return walk.salvage(_reason(problem, data))
    return PickleTree(value=value)


def walk_head(data: bytes, end: int, memo: dict[int, Any]) -> dict[str, Any] | None:
    """The keys and values of the outermost dict before byte `end`; None unless the bytes up to there are whole keys
    with their values. memo: gets what is stored. May raise what `walk_part` raises."""
    walk = _Walk(data[:end], "", 0, memo)
    try:
        walk.run()
    except IndexError:
        pass
    else:
        return None
    if walk.at != end or len(walk.open) != 1 or len(walk.open[0]) != 1 or len(walk.stack) % 2:
        return None
    root: dict[str, Any] = walk.open[0][0]
    _update(root, walk.stack)
    return root


def walk_part(data: bytes, at: int, memo: dict[int, Any]) -> tuple[object, int]:
    """The dict whose pickle begins at byte `at`, and the byte after it. memo: what is stored so far, to be added to.

    Raises Damaged, DumpError, struct.error, LookupError or UnicodeDecodeError.
    """
    walk = _Walk(data, "", at, memo)
    value = walk.run(one_dict=True)
    if len(walk.stack) != 1:
        raise Damaged("values beside the dict")
    return value, walk.at


def walk_tail(data: bytes, memo: dict[int, Any]) -> dict[str, Any]:
    """The keys and values that end the outermost dict, with which the pickle ends. Raises what `walk_part` raises."""
    value = _Walk(b"}(" + data, "", 0, memo).run()
    if type(value) is not dict:
        raise Damaged("the pickle is no dict")
    return value


def _reason(problem: Exception, data: bytes) -> str:
    match problem:
        case Damaged():
            return str(problem)
        case KeyError():
            return "it refers to a value that was never stored"
        case UnicodeDecodeError():
            return "text that is not UTF-8"
        case IndexError() if not str(problem).startswith("index out of range"):
            return "an opcode that lacks its values"
        case _:
            return _CUT


class _Walk:
    """One walk: a stack of finished values, and below it the stacks of the containers that are still open."""

    def __init__(self, data: bytes, where: str, at: int = 0, memo: dict[int, Any] | None = None) -> None:
        self.data = data
        self.where = where
        self.at = at
        self.memo: dict[int, Any] = {} if memo is None else memo
        self.stack: list[Any] = []
        self.open: list[list[Any]] = []

    def run(self, *, one_dict: bool = False) -> object:  # noqa: PLR0912, PLR0915 - one loop, the frequent opcodes first
        """Walk to STOP and return the value; with `one_dict` only to where the first dict is filled."""
        data, size, at = self.data, len(self.data), self.at
        stack, memo = self.stack, self.memo
        push = stack.append
        while True:
            self.at = at
            op = data[at]
            at += 1
            if op == 0x68:  # BINGET
                push(memo[data[at]])
                at += 1
            elif op == 0x4B:  # BININT1
                push(data[at])
                at += 1
            elif op == 0x71:  # BINPUT
                memo[data[at]] = stack[-1]
                at += 1
            elif op == 0x72:  # LONG_BINPUT
                memo[_UINT32(data, at)[0]] = stack[-1]
                at += 4
            elif op == 0x6A:  # LONG_BINGET
                push(memo[_UINT32(data, at)[0]])
                at += 4
            elif op == 0x4A:  # BININT
                push(_INT32(data, at)[0])
                at += 4
            elif op == 0x28:  # MARK
                if len(self.open) >= MAX_DEPTH:
                    raise Damaged(f"more than {MAX_DEPTH} values inside each other")
                self.open.append(stack)
                self.stack = stack = []
                push = stack.append
            elif op == 0x5D:  # EMPTY_LIST
                push([])
            elif op == 0x65:  # APPENDS
                items, stack = stack, self.open.pop()
                self.stack, push = stack, stack.append
                _extend(stack[-1], items)
            elif op == 0x8A:  # LONG1
                length = data[at]
                if length > MAX_LONG_BYTES:
                    raise Damaged(f"an integer of {length} bytes")
                at += 1
                push(int.from_bytes(_take(data, at, length, size), "little", signed=True))
                at += length
            elif op == 0x4E:  # NONE
                push(None)
            elif op == 0x89:  # NEWFALSE
                push(False)
            elif op == 0x88:  # NEWTRUE
                push(True)
            elif op == 0x7D:  # EMPTY_DICT
                push({})
            elif op == 0x75:  # SETITEMS
                items, stack = stack, self.open.pop()
                self.stack, push = stack, stack.append
                _update(stack[-1], items)
                if one_dict and not self.open:
                    self.at = at
                    return stack[0]
            elif op == 0x58:  # BINUNICODE
                length = _UINT32(data, at)[0]
                at += 4
                push(_take(data, at, length, size).decode())
                at += length
            elif op == 0x4D:  # BININT2
                push(_UINT16(data, at)[0])
                at += 2
            elif op == 0x86:  # TUPLE2
                stack[-2:] = [(stack[-2], stack[-1])]
            elif op == 0x2E:  # STOP
                if len(stack) != 1 or self.open:
                    raise Damaged("the end of the pickle stands in the middle of a value")
                return stack[0]
            else:
                at = self._rare(op, at, memo)
                stack = self.stack
                push = stack.append

    def _rare(self, op: int, at: int, memo: dict[int, Any]) -> int:  # noqa: PLR0911, PLR0912 - the other half of the opcodes
        """The opcodes that torch uses rarely or Python's own pickler uses instead. Returns where the next one is."""
        data, size, stack = self.data, len(self.data), self.stack
        match op:
            case 0x80:  # PROTO
                if data[at] > MAX_PROTOCOL:
                    raise Damaged(f"pickle protocol {data[at]} is unknown")
                return at + 1
            case 0x95:  # FRAME: only says how much follows
                _UINT64(data, at)
                return at + 8
            case 0x94:  # MEMOIZE
                memo[len(memo)] = stack[-1]
            case 0x8C:  # SHORT_BINUNICODE
                stack.append(_take(data, at + 1, data[at], size).decode())
                return at + 1 + data[at]
            case 0x8D:  # BINUNICODE8
                length = _UINT64(data, at)[0]
                stack.append(_take(data, at + 8, length, size).decode())
                return at + 8 + int(length)
            case 0x55:  # SHORT_BINSTRING
                stack.append(_take(data, at + 1, data[at], size).decode())
                return at + 1 + data[at]
            case 0x47:  # BINFLOAT
                stack.append(_FLOAT64(data, at)[0])
                return at + 8
            case 0x61:  # APPEND
                item = stack.pop()
                _extend(stack[-1], [item])
            case 0x73:  # SETITEM
                value, key = stack.pop(), stack.pop()
                _update(stack[-1], [key, value])
            case 0x29:  # EMPTY_TUPLE
                stack.append(())
            case 0x85:  # TUPLE1
                stack[-1:] = [(stack[-1],)]
            case 0x87:  # TUPLE3
                stack[-3:] = [(stack[-3], stack[-2], stack[-1])]
            case 0x74:  # TUPLE
                self.stack = self.open.pop()
                self.stack.append(tuple(stack))
            case _ if op in _UNSAFE:
                self._refuse(op, at - 1)
            case _:
                raise Damaged(f"0x{op:02x} is no opcode of a recorder's pickle")
        return at

    def _refuse(self, op: int, at: int) -> NoReturn:
        raise UnsafeDumpError(
            f"the pickle asks to find or run code ({_UNSAFE[op]} at byte {at}); no recorder does, so it was not read",
            where=self.where,
            next_step="find out who wrote this file; do not open it with pickle or torch.load",
        )

    def salvage(self, reason: str) -> PickleTree:
        """Close what is open, from the inside out, without the pieces that miss their other half."""
        stack = self.stack
        # A container that was just made and not yet filled is not complete either.
        open_ids = {id(value) for value in stack[-1:] if value in ([], {})}
        while self.open:
            outer = self.open.pop()
            container = outer[-1] if outer else None
            if isinstance(container, list):
                container.extend(stack)
                open_ids.add(id(container))
            elif isinstance(container, dict):
                pairs = zip(stack[::2], stack[1::2], strict=False)
                container.update((key, value) for key, value in pairs if isinstance(key, str))
                open_ids.add(id(container))
            stack = outer
        root = stack[0] if stack else None
        cut_at = len(self.data) if reason == _CUT else self.at
        return PickleTree(value=root, cut_at_byte=cut_at, reason=reason, open_ids=frozenset(open_ids))


def _take(data: bytes, at: int, length: int, size: int) -> bytes:
    if at + length > size:
        raise Damaged(_CUT)
    return data[at : at + length]


def _extend(container: object, items: list[Any]) -> None:
    if type(container) is not list:
        raise Damaged("items are added to something that is no list")
    container.extend(items)


def _update(container: object, items: list[Any]) -> None:
    keys = items[::2]
    if type(container) is not dict or len(items) % 2:
        raise Damaged("keys and values are added to something that is no dict")
    if any(type(key) is not str for key in keys):
        raise Damaged("a key that is not text")
    container.update(zip(keys, items[1::2], strict=True))
