"""Two jobs on one host that measure in turns: a block of this one, a block of the other, while the other one waits.

A machine that gets slower or faster in between meets both alike. The order is first, second, second, first, first, ...,
so that neither always comes after the other. What is known of the other job is files in a directory that both see:

    here.SIDE               it has made its group and is ready for the first part that is measured in turns
    PART.here.SIDE          it has set this part up
    PART.NUMBER.SIDE        it has measured this block
    PART.done.SIDE          and the last one
    PART.left.SIDE          this part failed there: do not wait
    gone.SIDE               no turn of this job comes any more, for instance since torchrun started it again
    alone.SIDE              a rank of this job has waited in vain: none of its ranks waits any more
    over.SIDE               written by hangdrill: the job has ended, however it did
    alive                   hangdrill keeps it locked as long as it lives

A wait in vain ends after a limit, and from then on this job measures alone: what became of the other one must not cost
this one its numbers. So the limits are of all waits of a part together, and of all of the job together: however slow
the other one is, there is as much time left for this one as it has alone.
"""

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hangdrill.rank.files import wait_until

__all__ = ["ALIVE", "FIRST", "HERE", "IN_TURNS", "OVER", "PATIENCE_S", "SECOND", "SIDES", "Turns"]

FIRST, SECOND = "first", "second"
SIDES = (FIRST, SECOND)
HERE, GONE, ALONE, OVER, ALIVE = "here", "gone", "alone", "over", "alive"
IN_TURNS = frozenset(("latency", "p2p", "dp", "fsdp", "tp", "pp", "2d"))
"""The parts that two jobs measure in turns; what comes before and after them is measured while the other job waits."""
POLL_S = 0.005
"""Shorter ones would take from the job that measures what they are to give it."""
LOOK_S = 1.0
"""How often a wait looks whether hangdrill lives."""
PATIENCE_S = 300.0
ENDED = 75
"""Exit code of a rank that waits for what nobody will ever bring."""


class Turns:
    """One rank's view. Every rank waits, and rank 0 alone writes what its job has done.

    directory None: there is no other job, and nothing is waited for. limit_s: of all waits of one part; patience_s: of
    all waits. waited_s: seconds in all that this rank waited.
    """

    def __init__(
        self, directory: Path | None, side: str, *, rank: int, limit_s: float, patience_s: float = PATIENCE_S
    ) -> None:
        self._directory, self._side, self._rank = directory, side, rank
        self._limit_s, self._patience_s = limit_s, patience_s
        self._until_s = patience_s
        """What waited_s must not exceed now."""
        self._gave_up = False
        self.together = directory is not None
        """Whether what comes next is measured in turns: the same on every rank, whatever became of the other job."""
        self.waited_s = 0.0

    def join(self) -> None:
        """Wait until the other job has come this far; hangdrill starts the second one once the first is here."""
        self._tell(HERE)
        self._wait_for([HERE, GONE, OVER])

    def open(self, part: str) -> None:
        """Wait until the other job has set the part up too."""
        self._until_s = min(self._patience_s, self.waited_s + self._limit_s)
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
        self._end_without_hangdrill()  # torchrun may start this job again, for nobody
        self._touch(GONE)
        self.together = False

    def part_ways(self) -> None:
        """After the last turn: what remains, the second job does once the first one has ended."""
        self._until_s = self._patience_s
        if self._side == SECOND:
            self._wait_for([OVER])
        self.end()

    def _tell(self, what: str) -> None:
        if self._rank == 0:
            self._touch(what)

    def _touch(self, what: str) -> None:
        if self._directory is not None:
            os.close(os.open(self._directory / f"{what}.{self._side}", os.O_WRONLY | os.O_CREAT, 0o600))

    def _wait(self, what: str, part: str) -> None:
        self._wait_for([what, f"{part}.left", GONE, OVER])

    def _wait_for(self, any_of: list[str]) -> None:
        if self._directory is None or self._gave_up:
            return
        other = SECOND if self._side == FIRST else FIRST
        files = [self._directory / f"{ALONE}.{self._side}", *(self._directory / f"{name}.{other}" for name in any_of)]
        left_s, began_s = self._until_s - self.waited_s, time.perf_counter()
        looked_s = began_s

        def come() -> bool:
            nonlocal looked_s
            if time.perf_counter() - looked_s > LOOK_S:
                looked_s = time.perf_counter()
                self._end_without_hangdrill()
            return any(file.exists() for file in files)

        if not wait_until(come, limit_s=left_s, poll_s=POLL_S):
            self._gave_up = True
            self._touch(ALONE)  # one that went on waiting would be waited for by its peers, inside a collective
        self.waited_s += time.perf_counter() - began_s

    def _end_without_hangdrill(self) -> None:
        """It starts the second job, and says that one is over: killed, it would be waited for in vain."""
        if self._directory is not None and not _is_locked(self._directory / ALIVE):
            print("hangdrill.rank.canary: hangdrill was killed", file=sys.stderr, flush=True)
            os._exit(ENDED)


def _is_locked(path: Path) -> bool:
    """Also where nobody can tell. The kernel takes the lock back when its process dies, also in another namespace."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return path.parent.exists()  # removed by a later hangdrill
    except OSError:
        return True
    return False
