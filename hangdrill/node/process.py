"""One node's part in a drill, from waiting for the run directory to the last word.

Steps: wait for the plan and claim the node's number; make the host's own directory; tell the controller that this
host is there; once all are, start the collector and torchrun; serve the controller's orders; end everything; tell what
is left.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping

from hangdrill.drill.control import ControlReader
from hangdrill.drill.layout import RunLayout
from hangdrill.drill.plan_values import Plan
from hangdrill.drill.procfs import own_id
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.model.errors import HangdrillError, MachineError
from hangdrill.model.run import Leftover, NodeFault, NodeStatus
from hangdrill.model.scenario import Trigger
from hangdrill.node.addresses import free_port, own_address
from hangdrill.node.guard import Charge, Guard, start_guard
from hangdrill.node.host_fault import HostFault
from hangdrill.node.joining import NodeOptions, claim, wait_for_plan
from hangdrill.node.local_job import LocalJobs
from hangdrill.node.place import LocalPlace, make_place, remove_place
from hangdrill.node.shared import SharedSide

__all__ = ["serve_node"]

SILENCE_S = 30.0
"""The controller beats four times a second; past this it is dead, or out of reach."""
LAST_WORD_S = 8.0
"""To carry the last files: a file server that hangs must not hold this process."""
POLL_S = 0.05
MARGIN_S = 120.0
LONGEST_TICK_S = 1.0


def serve_node(
    options: NodeOptions,
    environ: Mapping[str, str],
    interrupt: Interrupt,
    *,
    tell: Callable[[str], None] = lambda text: None,
) -> int:
    """Serve until the end; torchrun's exit code. tell: for people who watch.

    Raises MachineError when this host cannot take part or had to end its part by itself, Interrupted on a signal:
    everything on this host has been ended then.
    """
    layout = RunLayout(options.run.absolute())
    tell(f"node {options.node}: waiting for the drill in {layout.root}")
    plan = wait_for_plan(layout, options.node, interrupt)
    claim(layout, options.node)
    place, fault = make_place(plan, options.node, options.local_dir)
    guard: Guard | None = None
    try:
        charge = Charge(
            run_id=plan.run_id,
            node=options.node,
            owner=own_id(),
            local_root=str(place.root),
            controller_beat=str(layout.controller_beat),
        )
        guard = start_guard(charge)
        jobs = LocalJobs(plan, place, fault, options.node, environ)
        return NodeProcess(
            plan, layout=layout, place=place, jobs=jobs, options=options, guard=guard, interrupt=interrupt, tell=tell
        ).run()
    finally:
        remove_place(place)
        if guard is not None:
            guard.dismiss()


class NodeProcess:
    """Serves one drill on one host."""

    def __init__(
        self,
        plan: Plan,
        *,
        layout: RunLayout,
        place: LocalPlace,
        jobs: LocalJobs,
        options: NodeOptions,
        guard: Guard,
        interrupt: Interrupt,
        tell: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._layout = layout
        self._options = options
        self._jobs = jobs
        self._guard = guard
        self._interrupt = interrupt
        self._tell = tell
        self._control = ControlReader(place.control)
        self._host_fault = HostFault(plan, place, options.node, jobs=jobs, guard=guard)
        self._endpoint = ""
        self._address = ""
        self._state = "waiting"
        self._problem = ""
        self._leftovers: tuple[Leftover, ...] | None = None
        self._silent_s = 0.0
        self._heard = 0
        self._last_tick_s = time.monotonic()
        self._ends_s = self._last_tick_s + _overall_s(plan)
        self._asked = 0
        self._shared = SharedSide(plan, layout, place, options.node, self._status)

    def run(self) -> int:
        """Until the controller's word, or a deadline of our own."""
        self._shared.start()
        kill = False
        try:
            self._meet()
            self._start()
            kill = self._serve()
        except HangdrillError as error:
            self._problem = error.what
            raise
        finally:
            self._end(kill=kill)
        self._say(self._problem or "done")
        self._interrupt.check()
        if self._problem:
            raise MachineError(
                self._problem, where=str(self._layout.root), next_step="everything on this host was ended; see node 0"
            )
        return self._jobs.exit_code()

    def _meet(self) -> None:
        """Tell the others where node 0 is, and wait until all are there."""
        self._host_fault.check()
        given = self._options.endpoint
        if self._options.node == 0:
            self._address = own_address(self._options.address, peer="")
            self._endpoint = given or _endpoint(self._address, free_port(self._address))
        while not self._over():
            orders = self._shared.orders
            if orders.start and (orders.endpoint or given):
                self._endpoint = self._endpoint or given or orders.endpoint
                peer = self._endpoint.rpartition(":")[0].strip("[]")
                self._address = self._address or own_address(self._options.address, peer=peer)
                return
            self._interrupt.wait(POLL_S)

    def _start(self) -> None:
        if self._over():
            return
        if self._plan.scenario.recorder.trigger is Trigger.COLLECTOR:
            self._jobs.start_collector(self._layout.node_evidence(self._options.node))
        self._jobs.start_torchrun(endpoint=self._endpoint, address=self._address)
        self._state = "running"
        self._say(f"started torchrun of {self._plan.name}, meeting at {self._endpoint}, from {self._address}")

    def _serve(self) -> bool:
        """Pass on what the controller orders until it ends the job; whether it wants it killed."""
        while not self._over():
            orders = self._shared.orders
            asked = orders.asked.get(str(self._options.node), 0)
            if asked > self._asked:
                self._asked = asked
                self._jobs.ask_collector()
            if self._options.node in orders.die:
                self._host_fault.die()
            if orders.released:
                self._host_fault.undo()
                self._jobs.release()
            if orders.teardown:
                self._jobs.tell_teardown()
            self._host_fault.place_when_due(self._tell_before_the_end)
            if orders.end:
                return orders.end == "kill"
            self._interrupt.wait(POLL_S)
        return False

    def _over(self) -> bool:
        """Whether this node must end by itself; says why."""
        now_s = time.monotonic()
        # Our own ticks, not a clock: a host that was suspended has not found the controller silent meanwhile.
        self._silent_s += min(now_s - self._last_tick_s, LONGEST_TICK_S)
        self._last_tick_s = now_s
        if self._shared.heard != self._heard:
            self._heard, self._silent_s = self._shared.heard, 0.0
        if self._interrupt.signal is not None:
            self._problem = f"ended by {self._interrupt.signal.name}"
        elif self._silent_s > SILENCE_S:
            self._problem = f"the controller has not been heard of for {SILENCE_S:g} s"
        elif now_s > self._ends_s:
            self._problem = "the drill's overall deadline is over"
        elif not self._shared.orders.end:
            return False
        return True

    def _end(self, *, kill: bool) -> None:
        """Whatever happened: release, end, look, tell."""
        self._state = "ending"
        self._host_fault.undo()
        self._jobs.end(kill=kill, hurry=self._shared.orders.hurry or bool(self._problem))
        self._leftovers = self._jobs.leftovers()
        self._state = "finished"
        self._shared.finish(LAST_WORD_S)

    def _tell_before_the_end(self, fault: NodeFault) -> None:
        """Wait until the report is carried."""
        told = self._shared.rounds + 2
        Waiter().until(lambda: self._shared.rounds >= told or None, deadline_s=LAST_WORD_S)
        self._say(fault.what)

    def _say(self, text: str) -> None:
        self._tell(f"node {self._options.node}: {text}")

    def _status(self, beat: int) -> NodeStatus:
        ranks = self._control.facts()
        return NodeStatus(
            node=self._options.node,
            host=socket.gethostname(),
            pid=os.getpid(),
            beat=beat,
            state=self._state,  # type: ignore[arg-type] # one of the words of NodeStatus
            address=self._address,
            endpoint=self._endpoint,
            ranks=tuple(sorted({key.rank for key in ranks})),
            living=self._jobs.living(ranks),
            torchrun=self._jobs.torchrun_code(),
            collector=self._jobs.collector_code(),
            fault=self._host_fault.report,
            problem=self._problem,
            leftovers=self._leftovers,
        )


def _endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _overall_s(plan: Plan) -> float:
    """Longer than the whole drill may take."""
    limits = plan.deadlines
    before_s = limits.nodes_s + limits.steady_s + limits.confirm_s
    return before_s + 2 * limits.within_s + limits.healthy_s + limits.restart_s + MARGIN_S
