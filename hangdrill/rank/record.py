"""The rank's own count of its operations by group, in a memory-mapped file that outlives the process.

This is the truth the dumps' sequence ids are checked against, so it is kept apart from torch's recorder. The layout is
in docs/reference/run-directory.md. Writing one operation costs a few hundred nanoseconds and makes no system call.
"""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HEADER_WORDS", "SLOTS", "SLOT_WORDS", "LastOperation", "Record"]

MAGIC = 0x48444F5053000001
HEADER_WORDS = 8
SLOT_WORDS = 8
SLOTS = 256

STEPS, LAST_SLOT, LAST_NS = 3, 4, 5
"""Words of the header."""

COLLECTIVES, P2P, LAST_CODE, SLOT_NS, UNRECORDED = 0, 1, 2, 3, 4
"""Words of a slot. UNRECORDED counts what no recorder shows: splits and new windows."""


@dataclass(frozen=True)
class LastOperation:
    """The operation this rank entered last. sequence counts collectives or p2p of its group, from 1."""

    slot: int
    code: int
    sequence: int
    p2p: bool


class Record:
    """The counts of one process. `words` is what the hooks write to: base(slot) + one of the words above."""

    def __init__(self, path: Path) -> None:
        """Create the file (mode 0600) anew. Raises OSError."""
        size = 8 * (HEADER_WORDS + SLOTS * SLOT_WORDS)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(descriptor, size)
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self.words = memoryview(self._map).cast("Q")
        self.words[1], self.words[2] = SLOT_WORDS, SLOTS
        self.words[0] = MAGIC

    @staticmethod
    def base(slot: int) -> int:
        """The index of a slot's first word."""
        return HEADER_WORDS + slot * SLOT_WORDS

    def counts(self, slot: int) -> tuple[int, int]:
        """(collectives, p2p) entered so far in the group of this slot."""
        base = self.base(slot)
        return self.words[base + COLLECTIVES], self.words[base + P2P]

    @property
    def steps(self) -> int:
        """Training steps done."""
        return self.words[STEPS]

    @steps.setter
    def steps(self, done: int) -> None:
        self.words[STEPS] = done

    def last(self, p2p_codes: frozenset[int]) -> LastOperation | None:
        """The operation entered last in any group, None before the first."""
        if not self.words[LAST_NS]:
            return None
        slot = self.words[LAST_SLOT]
        code = self.words[self.base(slot) + LAST_CODE]
        p2p = code in p2p_codes
        return LastOperation(slot=slot, code=code, sequence=self.counts(slot)[p2p], p2p=p2p)
