"""A running drill: its job, its road, its fault and its record, and single steps on them. The order is `run.py`'s.

Every step that undoes something is safe to repeat, and none of them is skipped because another one failed.
"""

import signal
import time
from collections.abc import Mapping
from pathlib import Path

from hangdrill.drill.control import ControlReader
from hangdrill.drill.delivered import look_at_delivered
from hangdrill.drill.fault import PlacedFault
from hangdrill.drill.inspection import BEFORE, COLLECTED, Inspector, sweep_sockets
from hangdrill.drill.layout import Journal, RunLayout
from hangdrill.drill.nodes import Nodes
from hangdrill.drill.nodes_road import NodesRoad
from hangdrill.drill.observe import RankObserver
from hangdrill.drill.plan import launch_request
from hangdrill.drill.plan_values import COLLECTOR_S, Plan, dump_place
from hangdrill.drill.procfs import own_id, pid_inside, read_process, scan
from hangdrill.drill.roads import NativeRoad, Road, SidecarRoad, read_manifest
from hangdrill.drill.supervise import Grace, Supervisor
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.launchers.protocol import LaunchedJob, Launcher, OutOfReach, PlacedJob
from hangdrill.model.run import MemoryFacts
from hangdrill.model.scenario import LauncherName, Teardown
from hangdrill.report.progress import Listener

__all__ = ["Session"]


class Session:
    """What one drill holds while it runs."""

    def __init__(
        self,
        plan: Plan,
        layout: RunLayout,
        *,
        launcher: Launcher,
        road: Road,
        journal: Journal,
        listener: Listener,
        interrupt: Interrupt,
    ) -> None:
        self.plan = plan
        self.layout = layout
        self.launcher = launcher
        self.road = road
        self.journal = journal
        self.listener = listener
        self.supervisor = Supervisor(plan.run_id, own_id())
        self.control = ControlReader(layout.control)
        self.fault = PlacedFault(plan.scenario.fault, layout.control)
        self.inspector = Inspector(plan, layout, self.locate, self.place_of)
        self.observer = RankObserver(plan, layout, listener)
        self.waiter = Waiter(interrupt, self.observer.tick)
        self.job: LaunchedJob | None = None
        self.nodes: Nodes | None = None
        """The hosts, of a job on several."""
        if plan.scenario.job.on_nodes:
            self.nodes = road.nodes if isinstance(road, NodesRoad) else Nodes(plan, layout)
        if isinstance(road, NativeRoad):
            road.locate = self._find
        if isinstance(road, SidecarRoad):
            road.pod_is_gone = lambda: self.job is not None and not self.job.leftovers()
        self._end_told = False
        self.environ: Mapping[str, str] = {}

    def tell(self, phase: str, event: str, detail: Mapping[str, object] | None = None, text: str = "") -> None:
        """One step is done: to the journal and to those who watch."""
        self.journal.write(event, detail)
        self.listener.phase(phase, text)

    def launch(self, environ: Mapping[str, str]) -> tuple[int, ...]:
        """Start the road and then the job, so that no rank lives unwatched; the pids of both."""
        self.inspector.look_at_files(BEFORE, None)
        self.environ = environ
        collector_pids = self.road.start(environ)
        self.supervisor.spare(collector_pids)
        if self.nodes is not None:
            self.nodes.start()
        self.job = self.launcher.start(launch_request(self.plan, environ))
        self.supervisor.adopt(self.job.pids())
        return (*collector_pids, *self.job.pids())

    def job_over(self) -> bool:
        """Whether the launcher's process has ended."""
        if self.job is None:
            return False
        over = self.job.poll() is not None
        return over if self.nodes is None else self.nodes.job_over() or (over and self.nodes.all_over())

    def others_are_gone(self) -> bool:
        """Whether every rank that is not a target has ended: then nobody but torchrun waits for the stalled one."""
        job = self.plan.scenario.job
        if job.launcher is LauncherName.KUBERNETES and job.kubernetes.engine == "cluster":
            return False  # its processes are none of this host's, so nobody can tell from here
        targets = set(self.plan.scenario.fault.targets)
        if self.nodes is not None:
            return self.nodes.all_ran() and not set(self.nodes.living_ranks()) - targets
        facts = self.control.facts()
        pids = {key.rank: agent.pid for key, agent in facts.items() if key.attempt == 0}
        others = [pids.get(rank) for rank in self.plan.expected_ranks if rank not in targets]
        return bool(others) and None not in others and not any(self._lives(pid) for pid in others if pid is not None)

    def host_fault(self) -> str | None:
        """What a node process did to its host, in words; None while it has not, and where nothing is to be done."""
        fault = self.plan.scenario.fault
        status = self.nodes.statuses().get(fault.host_node) if self.nodes is not None and fault.on_host else None
        return None if status is None or status.fault is None else f"{status.fault.what} on {status.host}"

    def host_fault_took(self) -> bool:
        """Whether a fault of a host is confirmed by its node process; every other fault is the ranks' to report."""
        return not self.plan.scenario.fault.on_host or self.host_fault() is not None

    def release(self) -> None:
        """Let go of every held, stopped or blocked rank."""
        from_ns = time.time_ns()
        released = self.fault.release(self.supervisor)
        if self.nodes is not None:
            self.nodes.release()
        if released.holds or released.fifos or released.continued:
            self.tell(
                "release",
                "released",
                {
                    "holds": released.holds,
                    "fifos": released.fifos,
                    "continued": released.continued,
                    "from_ns": from_ns,
                },
            )

    def inspect(self, when: str) -> None:
        """Look at every artifact."""
        if when == COLLECTED:
            if self.nodes is not None:
                self.nodes.hear_again()  # the counts of other hosts, as they are after the pull
            self.control.freeze_counts()
            self.look_around(COLLECTED)
        files = self.inspector.look_at_files(when, read_manifest(self.layout))
        self.journal.write("inspected", {"when": when, "files": files})

    def look_around(self, when: str) -> None:
        """Record where torch's dumps go, as the job sees it, and by how much its clocks differ from ours."""
        living = [process.id.pid for process in self.supervisor.processes()]
        self.inspector.look_at_place(when, max(living, default=None))  # the youngest: a rank, not what started it
        self.inspector.note_clocks(self.control.clocks())

    def locate(self, path: str) -> Path | None:
        """Where this host finds what the job calls `path`; None when it is gone, or out of reach."""
        if isinstance(self.job, PlacedJob) and not Path(path).is_relative_to(self.layout.root):
            return self.job.locate(path)
        if self.nodes is not None and not Path(path).is_relative_to(self.layout.root):
            return self.nodes.copy_of(path)
        place = dump_place(self.plan, path)
        return self.job.locate(path) if place is None and self.job is not None else place

    def _find(self, path: str) -> Path | None:
        """The same for who only wants what can be had."""
        try:
            return self.locate(path)
        except OutOfReach:
            return None

    def place_of(self, path: str) -> str:
        """What holds the job's `path`, if that goes with the job; else ""."""
        if isinstance(self.job, PlacedJob):
            return self.job.place_of(path)
        return self.nodes.place_of(path) if self.nodes is not None else ""

    def undergo(self, teardown: Teardown) -> None:
        """What the job's launcher does for a teardown; the journal says when it could not."""
        if self.nodes is not None and teardown is Teardown.HOST_LOSS:
            self.nodes.lose_last()
        if self.job is not None:
            self.job.undergo(teardown)
        memory = getattr(self.job, "memory", None)  # of a container that was driven over its limit
        if isinstance(memory, MemoryFacts):
            self.inspector.note_memory(memory)

    def remove_container(self) -> None:
        """Kill and remove the job's container, if it has one."""
        if self.job is not None:
            self.job.remove()

    def tell_teardown(self) -> None:
        """From now on agents do not wait for acks, and the collector finishes."""
        self.layout.teardown.touch(mode=0o600)

    def end_job(self, *, kill: bool = False, in_time: bool = True) -> None:
        """End every process of the job; once it is over, say so in the journal. Safe to repeat."""
        deadlines = self.plan.deadlines
        grace = Grace(int_s=deadlines.int_s, term_s=deadlines.term_s, kill_s=deadlines.kill_s)
        by_itself = self.job_over()
        if self.nodes is not None:
            self.nodes.end(kill=kill, hurry=self.waiter.interrupted)
            if self.job is not None and self.nodes.statuses():  # the node process here still says its last word
                Waiter().until(self.job.poll, deadline_s=deadlines.kill_s)
        report = self.supervisor.kill(grace) if kill else self.supervisor.end(grace)
        if self.job is None or self._end_told:
            return
        if self.job.poll() is None:
            self.job.signal(
                signal.SIGKILL
            )  # its processes are gone; a launcher may know more of it than this host does
        Waiter().until(self.job.poll, deadline_s=deadlines.kill_s)
        self.job.close()
        self._end_told = True
        of_nodes = self.nodes.exit_code() if self.nodes is not None else None
        detail = {
            "exit_code": self.job.poll() if of_nodes is None else of_nodes,
            "by_itself": by_itself,
            "signals": report.signals,
            "in_time": in_time and not report.survivors,
        }
        self.tell("ended", "job-ended", detail)

    def finish_road(self) -> None:
        """Let the road store and deliver what is left; an unfinished collector is ended. Who interrupts does not want
        to wait for a store that hangs."""
        deadline_s = COLLECTOR_S if self.waiter.interrupted else self.plan.deadlines.collector_s
        remarks = [self.road.finish(Waiter(), deadline_s)]
        if self.nodes is not None and self._end_told:
            remarks += self.nodes.problems()
        for remark in filter(None, remarks):
            self.listener.note(remark)
            self.journal.write("remark", {"text": remark})

    def look_at_delivered(self) -> None:
        """What the stores have, and what deletes it there, as this side sees it."""
        if not self.waiter.interrupted and self.job is not None:
            look_at_delivered(self.plan, self.environ)

    def sweep(self) -> None:
        """End what is left of anything, collector included; remove sockets and FIFOs; look whether it worked."""
        self.supervisor.spare(())
        deadlines = self.plan.deadlines
        self.supervisor.end(Grace(int_s=0, term_s=deadlines.term_s, kill_s=deadlines.kill_s))
        self.fault.sweep()
        sweep_sockets(self.layout)
        try:
            self.remove_container()
        finally:
            of_job = self.job.leftovers() if self.job is not None else ()
            of_nodes = self.nodes.leftovers() if self.nodes is not None else ()
            self.inspector.look_for_leftovers(self.supervisor, (*of_job, *of_nodes))
            if self.nodes is not None:
                self.nodes.stop()

    def _lives(self, pid: int) -> bool:
        if self.plan.scenario.job.contained:  # the agent told its pid in there
            return any(
                found.alive and found.run_id == self.plan.run_id and pid_inside(found.id.pid) == pid for found in scan()
            )
        found = read_process(pid)
        return found is not None and found.alive and found.run_id == self.plan.run_id
