"""How one entry of a recorder's pickle is laid out: where its integers are, what it refers to and what it stores."""

from collections.abc import Callable, Iterator
from operator import itemgetter
from struct import Struct
from typing import Any

from hangdrill.model.dump import Operation
from hangdrill.recorder.memo import Memo

__all__ = ["MAX_ENTRY_BYTES", "Layout", "OddEntry"]

MAX_ENTRY_BYTES = 4096

_SIZES = {
    0x68: 2, 0x6A: 5, 0x71: 2, 0x72: 5, 0x4B: 2, 0x4D: 3, 0x4A: 5, 0x8A: 10, 0x47: 9, 0x4E: 1, 0x88: 1, 0x89: 1,
    0x29: 1, 0x5D: 1, 0x7D: 1, 0x28: 1, 0x65: 1, 0x75: 1, 0x61: 1, 0x73: 1, 0x74: 1, 0x85: 1, 0x86: 1, 0x87: 1,
}  # fmt: skip
"""Opcodes of an entry and their sizes; BINUNICODE beside them. LONG1 is of 8 bytes."""
_INTEGERS = {0x4B: "B", 0x4D: "H", 0x4A: "i", 0x8A: "q"}
_WIDTHS = {"B": 1, "H": 2, "i": 4, "q": 8}
_DEEPER = {0x28: 1, 0x65: -1, 0x75: -1, 0x74: -1}
_TIMES = frozenset({"time_discovered_started_ns", "time_discovered_completed_ns"})
_COLUMNS = _TIMES | {"record_id", "collective_seq_id", "p2p_seq_id", "seq_id", "op_id", "time_created_ns"}

_UNUSED = frozenset({"thread_id", "thread_name"})
"""Keys whose values differ from rank to rank, and are not read."""


class OddEntry(Exception):
    """An entry of which no template can be made; the walk has read it all the same."""


class Layout:
    """Where the integers of an entry are, and what is between. Raises OddEntry for an entry that is laid out oddly."""

    def __init__(self, data: bytes, start: int, end: int, memo: Memo) -> None:
        self.size = end - start
        if self.size > MAX_ENTRY_BYTES:
            raise OddEntry
        self.keys: list[str] = []
        self.refs: list[int] = []
        self.puts: list[int] = []
        self.group: list[int] = []
        form, before = ["<"], start
        for at, code, key in self._integers(data, start, end, memo):
            form.append(f"{at - before}s{code}")
            before = at + _WIDTHS[code]
            self.keys.append(key)
        form.append(f"{end - before}s")
        layout = Struct("".join(form))
        self.unpack = layout.unpack_from
        self.constants = self.unpack(data, start)[::2]
        if len(self.group) == 2 and not {*self.group} & {*self.puts}:
            self.group_of: Callable[[dict[int, Any]], tuple[Any, ...]] = itemgetter(*self.group)
        else:
            self.refs += self.group
            self.group_of = _no_group
        self.refs = [index for index in dict.fromkeys(self.refs) if index not in self.puts]
        if len(self.refs) < 2 or len({*self.keys}) < len(self.keys):
            raise OddEntry

    def pick(self, operation: Operation) -> Callable[[tuple[Any, ...]], tuple[int, ...]]:
        """What takes the columns out of an unpacked entry; where there is no time, it takes anything."""
        sequence = "p2p_seq_id" if operation.p2p else "collective_seq_id"
        names = [
            "record_id",
            sequence if sequence in self.keys else "seq_id",
            "op_id",
            "time_created_ns",
            "record_id" if operation.started_ns is None else "time_discovered_started_ns",
            "record_id" if operation.completed_ns is None else "time_discovered_completed_ns",
        ]
        if not {*names} <= {*self.keys}:
            raise OddEntry
        return itemgetter(*(2 * self.keys.index(name) + 1 for name in names))

    def _integers(self, data: bytes, start: int, end: int, memo: Memo) -> Iterator[tuple[int, str, str]]:
        """(byte, code, key) of every integer that may differ in the next entry of this kind."""
        at, depth, group_at = start, 0, -1
        text: object = None  # the value that was just put on the stack, where it is text
        while at < end:
            op = data[at]
            size = _size(data, at)
            if op in _INTEGERS and depth == 1 and text in _COLUMNS:
                code = _INTEGERS[op]
                payload = at + size - _WIDTHS[code]
                if text not in _TIMES or any(data[payload : at + size]):  # a time of 0 is none, and so of another kind
                    yield payload, code, str(text)
            if op in (0x71, 0x72):
                self.puts.append(int.from_bytes(data[at + 1 : at + size], "little"))
            elif op in (0x68, 0x6A):
                index = int.from_bytes(data[at + 1 : at + size], "little")
                if text == "process_group":
                    self.group.append(index)
                    group_at = at + size
                elif at == group_at:
                    self.group.append(index)
                elif text not in _UNUSED:
                    self.refs.append(index)
                text = memo[index] if type(memo[index]) is str else None
            elif op == 0x58:
                text = data[at + 5 : at + size].decode()
            else:
                text = None
                depth += _DEEPER.get(op, 0)
            at += size


def _size(data: bytes, at: int) -> int:
    """The size of an opcode with its argument. Raises Odd for one that no recorder uses in an entry."""
    op = data[at]
    if op == 0x58:
        return 5 + int.from_bytes(data[at + 1 : at + 5], "little")
    if op not in _SIZES or (op == 0x8A and data[at + 1] != 8):
        raise OddEntry
    return _SIZES[op]


def _no_group(memo: dict[int, Any]) -> tuple[Any, ...]:
    return ()
