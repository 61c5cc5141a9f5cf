"""Rounds of canary jobs for gpu_canary.py: one job of each side, in changing order, timed one at a time.

Importing torch takes longer than what is measured, and would disturb it. So the jobs of a few rounds are made ready
together, each waits for its file once torch is imported, and then they are let go one after another: nothing else runs
meanwhile.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from hangdrill.certify.canary_jobs import run_canary
from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.canary_runs import PairRuns, Side, job_of
from hangdrill.certify.cells import CellContext
from hangdrill.drill.waiting import Waiter

__all__ = ["Rounds", "pairs_of"]

READY_LIMIT_S = 90.0
Sides = dict[str, tuple[Side, tuple[str, ...]]]
"""By name: the side, and the parts of its jobs."""


class Rounds:
    """Runs them, until they are enough or the time is over. say: told of each job."""

    def __init__(self, context: CellContext, sides: Sides, say: Callable[[str], None]) -> None:
        self._context, self._sides, self._say = context, sides, say
        self.runs: dict[str, list[CanaryRun]] = {name: [] for name in sides}

    def run(self, rounds: int, *, ahead: int, until_s: float) -> None:
        """`ahead` rounds are made ready together. until_s: of time.monotonic; none is begun after it."""
        with ThreadPoolExecutor(ahead * len(self._sides)) as pool:
            for first in range(0, rounds, ahead):
                if time.monotonic() > until_s:
                    self._say(f"the time is over after {first} rounds")
                    return
                self._some(pool, range(first, min(first + ahead, rounds)))

    def _some(self, pool: ThreadPoolExecutor, rounds: range) -> None:
        names = list(self._sides)
        order = [(at, name) for at in rounds for name in (names if at % 2 == 0 else names[::-1])]
        coming = [self._start(pool, at, name) for at, name in order]
        began_s = time.monotonic()
        ranks = self._context.plan.workload.nproc_per_node
        ready = Waiter(self._context.interrupt).until(
            lambda: (
                all(len(list(self._directory(at, name).glob("rank_*.json"))) == ranks for at, name in order) or None
            ),
            deadline_s=READY_LIMIT_S,
        )
        self._say(f"{len(order)} jobs ready: {'yes' if ready else 'not all'}, {time.monotonic() - began_s:.1f} s")
        for (at, name), job in zip(order, coming, strict=True):
            began_s = time.monotonic()
            self._go(at, name).touch()
            run = job.result()
            self.runs[name].append(run)
            self._say(f"round {at + 1}, {name}: {time.monotonic() - began_s:.1f} s {run.trouble()}")

    def _start(self, pool: ThreadPoolExecutor, at: int, name: str) -> "Future[CanaryRun]":
        side, parts = self._sides[name]
        job = job_of(self._context, side, self._directory(at, name), parts)
        options = (*job.options, "--go", str(self._go(at, name)))
        return pool.submit(run_canary, msgspec.structs.replace(job, options=options), self._context.interrupt)

    def _directory(self, at: int, name: str) -> Path:
        return self._context.cell_dir / f"{at}-{name}"

    def _go(self, at: int, name: str) -> Path:
        return self._context.cell_dir / f"{at}-{name}.go"


def pairs_of(runs: dict[str, list[CanaryRun]], old: str, new: str) -> PairRuns:
    """Run i of the one beside run i of the other."""
    return PairRuns(baseline=tuple(runs[old]), candidate=tuple(runs[new]))
