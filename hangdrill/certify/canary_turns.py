"""Two canary jobs at once on one host, which measure in turns (`hangdrill.rank.canary.turns`). Judges nothing.

The first job is started and measures what it measures alone: its start, its memory. Once it waits for its first turn,
the second one is started and does the same. Then both take turns. Then the first one goes on alone to its end, and the
second one after it. So nothing but the turns is measured while the other job does anything.
"""

import contextlib
import fcntl
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from hangdrill.certify.canary_jobs import CanaryJob, run_canary
from hangdrill.certify.canary_records import CanaryRun
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.rank.canary.turns import ALIVE, FIRST, HERE, OVER, SECOND

__all__ = ["run_in_turns"]


def run_in_turns(
    first: CanaryJob, second: CanaryJob, beside: Path, interrupt: Interrupt
) -> tuple[CanaryRun, CanaryRun]:
    """Run both to their ends or their deadlines, which are twice as long as those of a job alone: as long again for
    the other one.

    beside: where a directory is made for what the jobs tell each other. Raises MachineError when one of them cannot
    start, Interrupted; nothing of either is left then.
    """
    with _turns_directory(beside) as turns, ThreadPoolExecutor(2, thread_name_prefix="canary") as pool:

        def over(side: str) -> None:
            with contextlib.suppress(OSError):  # the other job is then waited for no longer than its patience
                (turns / f"{OVER}.{side}").touch()

        def start(job: CanaryJob, side: str) -> "Future[CanaryRun]":
            started = pool.submit(run_canary, _taking_turns(job, turns, side), interrupt)
            started.add_done_callback(lambda _: over(side))
            return started

        one = start(first, FIRST)
        here = turns / f"{HERE}.{FIRST}"
        Waiter(interrupt).until(lambda: here.exists() or one.done() or None, deadline_s=first.deadline_s)
        if one.done():
            one.result()  # raises what made its start impossible: there is nothing to measure beside it
        other = start(second, SECOND)
        return one.result(), other.result()


@contextlib.contextmanager
def _turns_directory(beside: Path) -> Iterator[Path]:
    """Of this pair alone: what a killed hangdrill left running goes on with its own. Locked, so that jobs see whether
    hangdrill lives."""
    beside.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="turns-", dir=beside, ignore_cleanup_errors=True) as name,
        (Path(name) / ALIVE).open("wb") as alive,
    ):
        fcntl.flock(alive, fcntl.LOCK_EX)
        yield Path(name)


def _taking_turns(job: CanaryJob, turns: Path, side: str) -> CanaryJob:
    return msgspec.structs.replace(
        job,
        options=(*job.options, "--turns", str(turns), "--side", side, "--patience-s", f"{job.deadline_s:g}"),
        deadline_s=2 * job.deadline_s,
        writes=(*job.writes, turns),
    )
