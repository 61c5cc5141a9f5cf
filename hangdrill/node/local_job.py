"""Everything of the job that runs on this host: torchrun with its ranks, and the collector. Nothing here touches the
run directory, so a file server that hangs cannot keep it from ending them."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from hangdrill.drill.collector_command import collector_words
from hangdrill.drill.collector_process import start_collector
from hangdrill.drill.control import RankAttempt
from hangdrill.drill.fault import PlacedFault
from hangdrill.drill.layout import RunLayout, make_directory
from hangdrill.drill.plan import launch_request
from hangdrill.drill.plan_values import COLLECTOR_S, Plan
from hangdrill.drill.procfs import CONTROLLER_VARIABLE, NODE_VARIABLE, RUN_ID_VARIABLE, own_id, read_process
from hangdrill.drill.supervise import Grace, Supervisor
from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.hosts import node_command
from hangdrill.launchers.process import LocalJob, start_local
from hangdrill.model.run import AgentFacts, Leftover
from hangdrill.node.addresses import interface_of
from hangdrill.node.place import LocalPlace

__all__ = ["LocalJobs"]

TERMINATE_S = 2.0
FAILED_CODE = 1
"""When torchrun was never started."""
_INTERFACE = "GLOO_SOCKET_IFNAME"


class LocalJobs:
    """Starts and ends them; every method but the starts is safe to repeat."""

    def __init__(
        self, plan: Plan, place: LocalPlace, fault: PlacedFault, node: int, environ: Mapping[str, str]
    ) -> None:
        self._plan = plan
        self._place = place
        self._fault = fault
        self._node = node
        self._environ = environ
        self._supervisor = Supervisor(plan.run_id, own_id(), node=node)
        self._torchrun: LocalJob | None = None
        self._collector: subprocess.Popen[bytes] | None = None
        self._released = False

    def start_collector(self, evidence: Path) -> None:
        """It writes to the shared directory itself; nobody waits for it but with a deadline."""
        words = (
            sys.executable, *collector_words(self._plan, self._node),
            "--sockets", str(self._place.sockets), "--control", str(self._place.control), "--to", str(evidence),
            "--parent-pid", str(os.getpid()),
        )  # fmt: skip
        self._collector = start_collector(
            words,
            environ={**self._environ, **self._marks()},
            cwd=self._place.root,
            log_path=self._place.collector_log,
        )
        self._supervisor.spare([self._collector.pid])

    def start_torchrun(self, *, endpoint: str, address: str) -> None:
        """MachineError when the system refuses."""
        request = launch_request(self._plan, self._environ)
        environ = {**request.environ, **self._marks(), "HANGDRILL_AGENT": str(self._place.orders)}
        if request.dump_dir:
            make_directory(Path(request.dump_dir))
        own_agent = str(self._place.agent_path)
        shared_agent = str(RunLayout(Path(self._plan.run_dir)).agent_path)
        parts = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part not in ("", shared_agent)]
        environ["PYTHONPATH"] = os.pathsep.join([own_agent, *parts])
        if _INTERFACE not in environ and (interface := interface_of(address)) is not None:
            environ[_INTERFACE] = interface
        logs = str(self._place.root / "torchrun")
        command = node_command(request, node=self._node, endpoint=endpoint, address=address, log_dir=logs)
        cwd = request.cwd if Path(request.cwd).is_dir() else str(self._place.root)
        self._torchrun = start_local(command, environ=environ, cwd=cwd, log_path=str(self._place.job_log))
        self._supervisor.adopt(self._torchrun.pids())

    def torchrun_code(self) -> int | None:
        """None while it runs, and before it was started."""
        return None if self._torchrun is None else self._torchrun.poll()

    def collector_code(self) -> int | None:
        """None while it runs, and where there is none."""
        return None if self._collector is None else self._collector.poll()

    def exit_code(self) -> int:
        """torchrun's."""
        code = self.torchrun_code()
        return FAILED_CODE if code is None else code

    def living(self, facts: Mapping[RankAttempt, AgentFacts]) -> tuple[int, ...]:
        """The ranks whose processes are there."""
        last = {key.rank: agent.pid for key, agent in sorted(facts.items())}
        return tuple(rank for rank, pid in last.items() if self._lives(pid))

    def ask_collector(self) -> None:
        """Pull at once."""
        path = self._place.control / "collect_now"
        with contextlib.suppress(OSError):
            path.touch(mode=0o600)

    def tell_teardown(self) -> None:
        """Agents no longer wait for acks, and the collector finishes."""
        path = self._place.control / "teardown"
        if not path.exists():
            with contextlib.suppress(OSError):
                path.touch(mode=0o600)

    def release(self) -> None:
        """Let every held, blocked or stopped rank of this host go on."""
        if not self._released:
            self._released = True
            self._fault.release(self._supervisor)

    def kill_torchrun(self) -> None:
        """Its ranks live on as orphans."""
        if self._torchrun is not None:
            self._torchrun.signal(signal.SIGKILL)

    def die(self) -> None:
        """SIGKILL to everything of the job on this host, and to this process last."""
        self._supervisor.spare(())
        self._supervisor.kill(Grace())
        os.kill(os.getpid(), signal.SIGKILL)

    def end(self, *, kill: bool, hurry: bool = False) -> None:
        """Release, end the ranks, let the collector finish, end what is left. hurry: wait for no store that hangs."""
        limits = self._plan.deadlines
        self.tell_teardown()
        self.release()
        grace = Grace(int_s=limits.int_s, term_s=limits.term_s, kill_s=limits.kill_s)
        if kill:
            self._supervisor.kill(grace)
        else:
            self._supervisor.end(grace)
        if self._torchrun is not None:
            Waiter().until(self._torchrun.poll, deadline_s=limits.kill_s)
        self._end_collector(min(COLLECTOR_S, limits.collector_s) if hurry else limits.collector_s)
        self._supervisor.spare(())
        self._supervisor.kill(grace)
        self._fault.sweep()

    def leftovers(self) -> tuple[Leftover, ...]:
        """What is still there."""
        return tuple(
            Leftover(what="process", name=f"{process.name} ({process.id.pid})")
            for process in self._supervisor.processes()
        )

    def _end_collector(self, deadline_s: float) -> None:
        process = self._collector
        if process is None or Waiter().until(process.poll, deadline_s=deadline_s) is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            if Waiter().until(process.poll, deadline_s=TERMINATE_S) is not None:
                return

    def _marks(self) -> dict[str, str]:
        """By which `hangdrill clean` on this host finds orphans, and proves that their node process is gone."""
        return {
            RUN_ID_VARIABLE: self._plan.run_id,
            CONTROLLER_VARIABLE: "{}:{}".format(*own_id()),
            NODE_VARIABLE: str(self._node),
        }

    def _lives(self, pid: int) -> bool:
        found = read_process(pid)
        return found is not None and found.alive and found.run_id == self._plan.run_id
