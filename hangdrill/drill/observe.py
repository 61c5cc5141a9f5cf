"""How each rank stands, for those who watch: read from `control/` and the manifest, and only told when it changes."""

import time
from collections.abc import Mapping

from hangdrill.drill.control import ControlReader, RankAttempt
from hangdrill.drill.layout import RunLayout
from hangdrill.drill.plan_values import Plan
from hangdrill.drill.roads import read_manifest
from hangdrill.model.run import ArtifactKind
from hangdrill.report.progress import Listener

__all__ = ["RankObserver"]

INTERVAL_S = 0.25
IDLE_S = 0.5


class RankObserver:
    """Call `tick` as often as you like; it looks at most four times a second."""

    def __init__(self, plan: Plan, layout: RunLayout, listener: Listener) -> None:
        self._plan = plan
        self._layout = layout
        self._listener = listener
        self._control = ControlReader(layout.control)
        self._next_s = 0.0
        self._told: dict[int, tuple[str, str]] = {}
        self._moved: dict[int, tuple[int, float]] = {}

    def tick(self) -> None:
        """Look, and tell what changed."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + INTERVAL_S
        for rank, told in self._states(now_s).items():
            if self._told.get(rank) != told:
                self._told[rank] = told
                self._listener.rank(rank, *told)

    def _states(self, now_s: float) -> dict[int, tuple[str, str]]:
        counts = _of_last_attempt(self._control.operations())
        faults = {report.rank: report.kind for report in self._control.faults()}
        exits = {key.rank for key in self._control.exits()}
        manifest = read_manifest(self._layout)
        dumped = (
            {artifact.rank for artifact in manifest.artifacts if artifact.kind is ArtifactKind.DUMP} if manifest else ()
        )
        states: dict[int, tuple[str, str]] = {}
        for rank in self._plan.expected_ranks:
            operations = counts.get(rank)
            if rank in dumped:
                states[rank] = ("dumped", faults.get(rank, ""))
            elif rank in exits:
                states[rank] = ("gone", faults.get(rank, ""))
            elif rank in faults:
                states[rank] = ("held", faults[rank])
            elif operations is None:
                states[rank] = ("starting", "")
            else:
                states[rank] = ("waiting" if faults and self._is_idle(rank, operations, now_s) else "running", "")
        return states

    def _is_idle(self, rank: int, operations: int, now_s: float) -> bool:
        before, since_s = self._moved.get(rank, (-1, now_s))
        if operations != before:
            self._moved[rank] = (operations, now_s)
            return False
        return now_s - since_s >= IDLE_S


def _of_last_attempt(counts: Mapping[RankAttempt, int]) -> dict[int, int]:
    """By rank; the keys are sorted, so a later attempt replaces an earlier one."""
    return {key.rank: count for key, count in sorted(counts.items())}
