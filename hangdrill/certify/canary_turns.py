"""Two canary jobs at once on one host, which measure in turns (`hangdrill.rank.canary.turns`). Judges nothing.

The first job is started and measures what it measures alone: its start, its memory. Once it waits for its first turn,
the second one is started and does the same. Then both take turns. Then the first one goes on alone to its end, and the
second one after it. So nothing but the turns is measured while the other job does anything.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from hangdrill.certify.canary_jobs import CanaryJob, run_canary
from hangdrill.certify.canary_records import CanaryRun
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.rank.canary.turns import FIRST, HERE, OVER, SECOND

__all__ = ["run_in_turns"]


def run_in_turns(first: CanaryJob, second: CanaryJob, turns: Path, interrupt: Interrupt) -> tuple[CanaryRun, CanaryRun]:
    """Run both to their ends or their deadlines, which are twice as long as those of a job alone.

    turns: a new directory for what the jobs tell each other. Raises MachineError when one of them cannot start,
    Interrupted; nothing of either is left then.
    """
    turns.mkdir(parents=True)
    with ThreadPoolExecutor(2, thread_name_prefix="canary") as pool:  # waits for both, whatever happens

        def start(job: CanaryJob, side: str) -> "Future[CanaryRun]":
            started = pool.submit(run_canary, _taking_turns(job, turns, side), interrupt)
            started.add_done_callback(lambda _: (turns / f"{OVER}.{side}").touch())
            return started

        one = start(first, FIRST)
        here = turns / f"{HERE}.{FIRST}"
        Waiter(interrupt).until(lambda: here.exists() or one.done() or None, deadline_s=2 * first.deadline_s)
        other = start(second, SECOND)
        return one.result(), other.result()


def _taking_turns(job: CanaryJob, turns: Path, side: str) -> CanaryJob:
    return msgspec.structs.replace(
        job,
        options=(*job.options, "--turns", str(turns), "--side", side),
        deadline_s=2 * job.deadline_s,
        writes=(*job.writes, turns),
    )
