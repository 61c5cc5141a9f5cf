"""Two jobs on one host that measure in turns: a block of this one, a block of the other, while the other one waits.

A machine that gets slower or faster in between meets both alike. The order is first, second, second, first, first, ...,
so that neither always comes after the other. What is known of the other job is files in a directory that both see:

    here.SIDE               it has made its group and is ready for the first part that is measured in turns
    PART.here.SIDE          it has set this part up
    PART.NUMBER.SIDE        it has measured this block
    PART.done.SIDE          and the last one
    PART.left.SIDE          this part failed there: do not wait
    gone.SIDE               no turn of this job comes any more, for instance since torchrun started it again
    over.SIDE               written by hangdrill: the job has ended, however it did

A wait in vain ends after a limit, and from then on this job measures alone: what became of the other one must not cost
this one its numbers.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hangdrill.rank.files import wait_until

__all__ = ["FIRST", "HERE", "IN_TURNS", "OVER", "SECOND", "SIDES", "Turns"]

FIRST, SECOND = "first", "second"
SIDES = (FIRST, SECOND)
HERE, GONE, OVER = "here", "gone", "over"
IN_TURNS = frozenset(("latency", "p2p", "dp", "fsdp", "tp", "pp", "2d"))
"""The parts that two jobs measure in turns; what comes before and after them is measured while the other job waits."""
POLL_S = 0.005
"""Shorter ones would take from the job that measures what they are to give it."""
START_LIMIT_S = 300.0
"""Of the waits that a whole start of the other job, or its end, falls into."""


class Turns:
    """One rank's view. Every rank waits, and rank 0 alone writes what its job has done.

    directory None: there is no other job, and nothing is waited for. waited_s: seconds in all that this rank waited.
    """

    def __init__(self, directory: Path | None, side: str, *, rank: int, limit_s: float) -> None:
        self._directory, self._side, self._rank, self._limit_s = directory, side, rank, limit_s
        self._gave_up = False
        self.together = directory is not None
        """Whether what comes next is measured in turns: the same on every rank, whatever became of the other job."""
        self.waited_s = 0.0

    def join(self) -> None:
        """Wait until the other job has come this far; hangdrill starts the second one once the first is here."""
        self._tell(HERE)
        self._wait_for([HERE, GONE, OVER], START_LIMIT_S)

    def open(self, part: str) -> None:
        """Wait until the other job has set the part up too."""
        self._tell(f"{part}.here")
        self._wait(f"{part}.here", part)

    @contextmanager
    def block(self, part: str, number: int) -> Iterator[None]:
        """Wait for the turn of block `number`, counted from 0; leaving it ends the turn."""
        leads = self._side == SIDES[number % 2]
        if not leads:
            self._wait(f"{part}.{number}", part)
        yield
        self._tell(f"{part}.{number}")

    def close(self, part: str) -> None:
        """Wait until the other job is done with the part: what comes next would disturb its last block."""
        self._tell(f"{part}.done")
        self._wait(f"{part}.done", part)

    def leave(self, part: str) -> None:
        """The part has failed on this rank: the other job goes on without it."""
        self._touch(f"{part}.left")

    def end(self) -> None:
        """No turn of this job comes any more, and it waits for none."""
        self._touch(GONE)
        self.together = False

    def part_ways(self) -> None:
        """After the last turn: what remains, the second job does once the first one has ended."""
        if self._side == SECOND:
            self._wait_for([OVER], START_LIMIT_S)
        self.end()

    def _tell(self, what: str) -> None:
        if self._rank == 0:
            self._touch(what)

    def _touch(self, what: str) -> None:
        if self._directory is not None:
            os.close(os.open(self._directory / f"{what}.{self._side}", os.O_WRONLY | os.O_CREAT, 0o600))

    def _wait(self, what: str, part: str) -> None:
        self._wait_for([what, f"{part}.left", GONE, OVER], self._limit_s)

    def _wait_for(self, any_of: list[str], limit_s: float) -> None:
        if self._directory is None or self._gave_up:
            return
        other = SECOND if self._side == FIRST else FIRST
        files = [self._directory / f"{name}.{other}" for name in any_of]
        began_s = time.perf_counter()
        if not wait_until(lambda: any(file.exists() for file in files), limit_s=limit_s, poll_s=POLL_S):
            self._gave_up = True
        self.waited_s += time.perf_counter() - began_s
