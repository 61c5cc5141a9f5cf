"""Reads a rank agent's memory-mapped count of operations (docs/reference/run-directory.md, `ops`).

It stays readable while the rank is stopped, holds its GIL or is dead, so it tells progress when nothing else does.
"""

import mmap
import struct
from pathlib import Path

import msgspec

from hangdrill.model.run import AgentFacts, GroupCount

__all__ = ["OperationsFile", "Progress", "SlotCount", "count_groups"]

MAGIC = 0x48444F5053000001
_HEADER = struct.Struct("<8Q")
_SLOT = struct.Struct("<8Q")
_SLOT_LIMIT = 4096


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a rank came. last_operation_ns 0: none yet."""

    steps: int
    last_operation_ns: int


class SlotCount(msgspec.Struct, frozen=True, kw_only=True):
    """Operations that the rank has entered in one group."""

    collectives: int
    p2p: int
    last_operation_ns: int = 0


class OperationsFile:
    """An open ops file. Close it; a file that is too short or another program's is no ops file (ValueError)."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as stream:
            self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        slots = _slots(self._map)
        if slots is None:
            self._map.close()
            raise ValueError(f"{path.name}: not an ops file of this version")
        self._slots = slots

    def progress(self) -> Progress:
        """As of now."""
        _, _, _, steps, _, last_ns, _, _ = _HEADER.unpack_from(self._map)
        return Progress(steps=steps, last_operation_ns=last_ns)

    def slot(self, index: int) -> SlotCount | None:
        """The count of one group, None when the agent has no slot for it."""
        if not 0 <= index < self._slots:
            return None
        collectives, p2p, _, last_ns, *_ = _SLOT.unpack_from(self._map, _HEADER.size + index * _SLOT.size)
        return SlotCount(collectives=collectives, p2p=p2p, last_operation_ns=last_ns)

    def close(self) -> None:
        """Lets go of the mapping."""
        self._map.close()


def count_groups(operations: OperationsFile, facts: AgentFacts) -> tuple[GroupCount, ...]:
    """The counts by group. Only a pre-hook counts everything: wrapped functions miss what C++ starts, so then none."""
    if facts.placement != "pre-hook":
        return ()
    slots = ((group, operations.slot(index)) for index, group in enumerate(facts.groups))
    return tuple(
        msgspec.structs.replace(
            group, collectives=slot.collectives, p2p=slot.p2p, last_operation_ns=slot.last_operation_ns
        )
        for group, slot in slots
        if slot is not None
    )


def _slots(data: mmap.mmap) -> int | None:
    """The number of slots that the header promises and the file holds; None when the header is another one."""
    if len(data) < _HEADER.size:
        return None
    magic, words, slots = struct.unpack_from("<3Q", data)
    whole = slots <= _SLOT_LIMIT and len(data) >= _HEADER.size + slots * _SLOT.size
    return slots if magic == MAGIC and words == 8 and whole else None
