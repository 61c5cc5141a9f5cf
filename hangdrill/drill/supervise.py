"""The only owner of processes: finds every process of a run, ends them, and proves that none is left.

A process belongs to a run when it carries the run's id in its environment, or is in a session that the run started, or
descends from one of its processes. What was seen once stays known, so that a process that was re-parented to init after
it had cleared its environment and left its session is not lost. Nothing else is ever signalled.
"""

import os
import signal
from collections.abc import Iterable, Mapping

import msgspec

from hangdrill.drill.procfs import ProcessId, ProcessInfo, read_process, scan, send_signal
from hangdrill.drill.waiting import Waiter
from hangdrill.model.errors import InternalError, MachineError, UsageError

__all__ = ["EndReport", "Grace", "Supervisor", "require_own_process"]


class Grace(msgspec.Struct, frozen=True, kw_only=True):
    """How long each signal may take before the next one is sent."""

    int_s: float = 1.0
    term_s: float = 1.0
    kill_s: float = 10.0


class EndReport(msgspec.Struct, frozen=True, kw_only=True):
    """How an ending went: the signals that were needed, and who survived SIGKILL (stuck in the kernel)."""

    signals: tuple[str, ...] = ()
    survivors: tuple[ProcessInfo, ...] = ()

    def require_none_left(self, what: str) -> None:
        """MachineError when somebody survived. what: whose processes they are ("run 1f0c")."""
        if self.survivors:
            raise MachineError(
                f"processes of {what} survive SIGKILL: {', '.join(str(item.id.pid) for item in self.survivors)}",
                next_step="they are stuck in the kernel (GPU, network or disk): look at dmesg",
            )


class Supervisor:
    """Owns the processes of one run. `processes()` looks anew each time; all methods are safe to repeat.

    controller: the process that runs the drill. Nothing older than it can be of the run, so nothing older is ever
    signalled, whatever else went wrong.
    """

    def __init__(self, run_id: str, controller: ProcessId, *, node: int | None = None) -> None:
        """node: own only what this node's process started, of a run of which another node may share the host."""
        if not run_id:
            raise InternalError("a supervisor needs a run id")
        self._run_id = run_id
        self._node = None if node is None else str(node)
        self._not_before_ticks = controller.started_ticks
        self._known: set[ProcessId] = set()
        self._sessions: set[int] = set()
        self._spared: set[ProcessId] = set()

    def adopt(self, pids: Iterable[int]) -> None:
        """Take processes that this run has started, each the leader of its own session; any other is not taken."""
        for pid in pids:
            found = read_process(pid)
            if found is None or found.session != pid or pid == os.getpid():
                continue
            if found.id.started_ticks >= self._not_before_ticks:
                self._remember(found)

    def spare(self, pids: Iterable[int]) -> None:
        """Leave these and their descendants alone from now on (the collector, while it works); () spares nobody."""
        self._spared = {found.id for found in map(read_process, pids) if found is not None}

    def processes(self) -> tuple[ProcessInfo, ...]:
        """All that live now, zombies left out, sorted by pid."""
        everything = {
            process.id.pid: process for process in scan() if process.id.started_ticks >= self._not_before_ticks
        }
        for pid in _own_line(everything):
            del everything[pid]
        ours = _with_heirs(
            everything, {pid for pid, process in everything.items() if self._is_ours(process, everything)}
        )
        spared = _with_heirs(everything, {pid for pid, process in everything.items() if process.id in self._spared})
        found = [everything[pid] for pid in sorted(ours - spared)]
        for process in found:
            self._remember(process)
        return tuple(process for process in found if process.alive)

    def resume(self) -> tuple[int, ...]:
        """Continue every stopped process; the pids of those that were stopped."""
        stopped = [process.id for process in self.processes() if process.stopped]
        return tuple(process.pid for process in stopped if send_signal(process, signal.SIGCONT))

    def end(self, grace: Grace) -> EndReport:
        """INT, TERM, KILL, each with its deadline, until no process is left."""
        sent: list[str] = []
        steps = ((signal.SIGINT, grace.int_s), (signal.SIGTERM, grace.term_s), (signal.SIGKILL, grace.kill_s))
        for number, wait_s in steps:
            if wait_s <= 0:
                continue
            if not self.processes():
                break
            sent.append(number.name)
            self._signal_until_empty(number, wait_s)
        return EndReport(signals=tuple(sent), survivors=self.processes())

    def kill(self, grace: Grace) -> EndReport:
        """SIGKILL at once."""
        return self.end(Grace(int_s=0, term_s=0, kill_s=grace.kill_s))

    def _signal_until_empty(self, number: signal.Signals, wait_s: float) -> None:
        """Signal everything, also what is started meanwhile, until all are gone or the time is over."""
        told: set[ProcessId] = set()

        def probe() -> bool | None:
            living = self.processes()
            for process in living:
                if process.id not in told and send_signal(process.id, number):
                    told.add(process.id)
                if process.stopped and number is not signal.SIGKILL:
                    # A stopped process takes its signal only once it is continued.
                    send_signal(process.id, signal.SIGCONT)
            return None if living else True

        Waiter().until(probe, deadline_s=wait_s, poll_s=0.02)

    def _remember(self, process: ProcessInfo) -> None:
        self._known.add(process.id)
        if process.session == process.id.pid:
            self._sessions.add(process.session)

    def _is_ours(self, process: ProcessInfo, everything: Mapping[int, ProcessInfo]) -> bool:
        marked = process.run_id == self._run_id and self._node in (None, process.node)
        if marked or process.id in self._known:
            return True
        # The number of a session is free again once it is empty: a leader that we do not know means that it was taken.
        leader = everything.get(process.session)
        return process.session in self._sessions and (leader is None or leader.id in self._known)


def _own_line(everything: Mapping[int, ProcessInfo]) -> tuple[int, ...]:
    """This process and its ancestors: never a drill's, whatever environment they were started with."""
    line: list[int] = []
    pid = os.getpid()
    while pid in everything and pid not in line:
        line.append(pid)
        pid = everything[pid].parent
    return tuple(line)


def _with_heirs(everything: Mapping[int, ProcessInfo], roots: set[int]) -> set[int]:
    """The roots and all that descend from them."""
    found, fresh = set(roots), set(roots)
    while fresh:
        fresh = {pid for pid, process in everything.items() if process.parent in fresh} - found
        found |= fresh
    return found


def require_own_process(pid: int, run_id: str, *, yes_this_is_staging: bool = False) -> ProcessId:
    """The process, proven to be of this run; UsageError when it is not: a fault is never placed on a stranger's job.

    yes_this_is_staging: the user took the responsibility for a job that hangdrill did not start.
    """
    found = read_process(pid)
    if found is None or not found.alive:
        raise UsageError(f"process {pid} does not exist, or is another user's", next_step="check the pid and the user")
    if found.run_id != run_id and not yes_this_is_staging:
        raise UsageError(
            f"process {pid} ({found.name}) was not started by this drill, so no fault is placed on it",
            next_step="let hangdrill start the job, or say --yes-this-is-staging if the job may hang",
        )
    return found.id
