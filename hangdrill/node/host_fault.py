"""A fault of this host: its link is cut, it dies, or its torchrun is killed. `arm -> place -> undo`, always.

The host's ranks are held at the step that the scenario names until the fault is there, so that it meets every drill at
the same place; then they go on. The network is given back at the release, at the end, and by the guard.
"""

import contextlib
import time
from collections.abc import Callable

from hangdrill.drill.control import ControlReader
from hangdrill.drill.plan_values import Plan
from hangdrill.model.run import NodeFault
from hangdrill.model.scenario import FaultKind
from hangdrill.node.guard import Guard, run_undo
from hangdrill.node.local_job import LocalJobs
from hangdrill.node.network import Cut, apply_cut, check_interface, plan_cut
from hangdrill.node.place import LocalPlace, is_mine

__all__ = ["HostFault"]

KILLED = "torchrun is killed, its ranks live on"


class HostFault:
    """The fault that is this node's to place; on every other node, and for every other fault, nothing."""

    def __init__(self, plan: Plan, place: LocalPlace, node: int, *, jobs: LocalJobs, guard: Guard) -> None:
        self._plan = plan
        self._fault = plan.scenario.fault
        self._mine = is_mine(plan, node)
        self._place = place
        self._control = ControlReader(place.control)
        self._jobs = jobs
        self._guard = guard
        self._cut: Cut | None = None
        self._over = False
        self.report: NodeFault | None = None

    def check(self) -> None:
        """Whether it could be placed; UsageError or MachineError when not. Changes nothing."""
        if self._mine and self._fault.interface is not None:
            check_interface(self._fault.kind, self._fault.interface)

    def place_when_due(self, tell: Callable[[NodeFault], None]) -> None:
        """Place it once every rank of this host has come to the step. tell: hear of it, and do not come back before the
        controller may know, since the host may die of it."""
        if not self._mine or self._over or len(self._control.faults()) < self._plan.scenario.job.nproc_per_node:
            return
        self._over = True
        kind, interface = self._fault.kind, self._fault.interface
        if kind is FaultKind.HOST_DEATH:
            self.report = _report(kind, "every process of the job is killed, and so is hangdrill's", interface)
            tell(self.report)
            self.die()
        elif kind is FaultKind.AGENT_KILL:
            self._jobs.kill_torchrun()
            self.report = _report(kind, KILLED, None)
        elif interface is not None:
            self._make(plan_cut(kind, interface, run_id=self._plan.run_id))
            self.report = _report(kind, self._cut.what if self._cut is not None else "", interface)
        self._let_go()

    def die(self) -> None:
        """As if the power failed. Where the scenario names an interface its link goes down first, so that no peer hears
        of the end; the guard brings it up again when the controller ends the job, or when the drill must be over."""
        if self._fault.interface is not None:
            check_interface(FaultKind.HOST_DEATH, self._fault.interface)
            limit_s = self._plan.deadlines.within_s + self._plan.deadlines.healthy_s
            cut = plan_cut(FaultKind.LINK_DOWN, self._fault.interface, run_id=self._plan.run_id, until_end_s=limit_s)
            self._make(cut)
        self._jobs.die()

    def undo(self) -> None:
        """Give the network back. Safe to repeat."""
        self._over = True
        if self._cut is not None:
            for undo in self._cut.undoes:
                run_undo(undo)
            self._guard.forget()
            self._cut = None

    def _make(self, cut: Cut) -> None:
        for undo in cut.undoes:
            self._guard.remember(undo)
        self._cut = cut
        apply_cut(cut)

    def _let_go(self) -> None:
        for path in self._place.control.glob("hold_*"):
            with contextlib.suppress(OSError):
                path.unlink()


def _report(kind: FaultKind, what: str, interface: str | None) -> NodeFault:
    return NodeFault(kind=kind.value, interface=interface or "", what=what, time_ns=time.time_ns())
