"""The waits of a drill, one function a phase. Each ends with one event in the journal; the order is `run.py`'s."""

import time
from pathlib import Path

from hangdrill.drill.fault import FaultState
from hangdrill.drill.inspection import RUNNING
from hangdrill.drill.plan_values import is_healthy, stall_after_s
from hangdrill.drill.roads import Notice
from hangdrill.drill.session import Session
from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.hosts import HostsLauncher
from hangdrill.model.errors import MachineError
from hangdrill.model.scenario import Teardown, Trigger

__all__ = ["collect", "confirm", "gather", "notice", "reach_steady", "tear_down"]

LAST_WORD_S = 1.0
"""The job is over and the collector has not said anything: it gets this long."""
LAST_BYTES = 4096
ASKED_S = 3.0
"""Past `within_s` the collector is asked once more for everything, so that the record shows what there was."""


def gather(session: Session) -> None:
    """Of a job on several hosts: wait until each has come, then let all start. MachineError when one does not."""
    nodes = session.nodes
    if nodes is None:
        return
    if isinstance(session.launcher, HostsLauncher):
        others = "1" if nodes.count == 2 else f"1 to {nodes.count - 1}"
        session.listener.note(f"waiting for node {others}: run the same command there, with --node-rank")
    early = session.waiter.until(
        lambda: not nodes.missing() or nodes.problems() or session.job_over() or None,
        deadline_s=session.plan.deadlines.nodes_s,
    )
    if nodes.problems():
        raise MachineError(nodes.problems()[0], where="a node", next_step="see nodes/ in the run directory")
    if nodes.missing():
        raise _missing(session, nodes.missing(), ended=bool(early))
    hosts = {str(node): status.host for node, status in nodes.statuses().items()}
    nodes.let_start()
    session.tell("launch", "nodes-ready", {"hosts": hosts}, ", ".join(hosts.values()))


def _missing(session: Session, missing: tuple[int, ...], *, ended: bool) -> MachineError:
    """Which nodes did not come, and what was said last."""
    names = ", ".join(f"node {node}" for node in missing)
    why = f"not there within {session.plan.deadlines.nodes_s:g} s"
    if ended:
        why = f"the job ended before it came: {_last_line(session.layout.job_log) or 'without a word'}"
    by_hand = isinstance(session.launcher, HostsLauncher)
    mend = "start the same command there with its --node-rank, and let all hosts share this directory"
    return MachineError(
        f"{names}: {why}",
        where=str(session.layout.job_log if ended else session.layout.root),
        next_step=mend if by_hand else "read job.log, and check that the nodes see the run directory and this Python",
    )


def _last_line(log: Path) -> str:
    """What a log says last; "" when it says nothing."""
    try:
        lines = log.read_bytes()[-LAST_BYTES:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def reach_steady(session: Session) -> None:
    """Wait until every rank has counted operations; an early fault or end is for the next phase to explain."""
    expected = set(session.plan.expected_ranks)

    def probe() -> bool | None:
        counts = session.control.operations()
        running = {key.rank for key, count in counts.items() if count > 0}
        early = session.control.faults() or session.job_over() or session.road.noticed() or _trouble(session)
        return True if running >= expected or early else None

    reached = session.waiter.until(probe, deadline_s=session.plan.deadlines.steady_s)
    counts = {str(key.rank): count for key, count in session.control.operations().items()}
    session.tell("steady", "steady", {"reached": reached is not None, "operations": counts})


def confirm(session: Session) -> bool:
    """Wait for every target's report. Without a fault the ranks themselves are the proof."""
    fault = session.fault
    alarm: dict[str, float] = {}
    patience_s = session.plan.scenario.job.timeout_s

    def probe() -> str | None:
        if not fault.missing(session.control.faults()) and session.host_fault_took():
            return ""
        if trouble := _trouble(session):
            return trouble
        if session.job_over():
            return "the job ended before it came to that"
        found = session.road.noticed()
        if found is None:
            alarm.clear()  # on a busy machine ranks start far apart, and then the job goes on after all
            return None
        since_s = alarm.setdefault(found.why, time.monotonic())
        return f"before it came to that: {found.why}" if time.monotonic() - since_s > patience_s else None

    why = session.waiter.until(probe, deadline_s=session.plan.deadlines.confirm_s)
    if why and not fault.missing(session.control.faults()) and session.host_fault_took():
        why = ""  # reported between the two looks
    if why == "":
        fault.confirm(session.control.faults())
        session.look_around(RUNNING)
        targets = session.plan.scenario.fault.targets
        on_host = session.host_fault()
        detail = {"ranks": targets} if on_host is None else {"ranks": targets, "host": on_host}
        session.tell("confirmed", "fault-confirmed", detail, on_host or _ranks_text(targets))
        return True
    why = why or f"not within {session.plan.deadlines.confirm_s:g} s"
    missing = fault.missing(session.control.faults())
    session.tell("confirmed", "fault-missed", {"missing": missing, "why": why}, f"the fault did not take: {why}")
    return False


def notice(session: Session) -> Notice | None:
    """Wait until something is noticed; None when the job ended well or nothing was noticed at all."""
    healthy = is_healthy(session.plan.scenario)
    deadlines = session.plan.deadlines
    deadline_s = deadlines.healthy_s if healthy else deadlines.within_s
    heard = _FreshNotices(session)

    def probe() -> Notice | None:
        found = heard.noticed()
        if found is None and session.nodes is not None and (why := session.nodes.trouble()):
            session.layout.collect_now.touch(mode=0o600)  # the ranks themselves may show nothing of it
            return Notice(by="host", why=why)
        if found is None and session.job_over():
            found = Waiter().until(session.road.noticed, deadline_s=0 if healthy else LAST_WORD_S)
            return found or Notice(by="job-ended", why="the job ended")
        _let_torch_end_it(session)
        return found

    found = session.waiter.until(probe, deadline_s=deadline_s)
    if found is None:
        found = Notice(by="deadline", why=f"nothing was noticed within {deadline_s:g} s")
    if healthy and found.by == "job-ended":
        session.tell("noticed", "no-hang", {"why": "the job ended by itself"}, "no hang")
        return None
    session.tell("noticed", "noticed", {"by": found.by, "why": found.why}, found.why)
    return found


class _FreshNotices:
    """The road's notices, without one that is older than the fault: that one was a false alarm. If it is not withdrawn
    or renewed by the time at which the fault itself must show, the collector is asked to pull anew."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._fault_ns = min(session.control.fault_times_ns(), default=0)
        self._ask_s = time.monotonic() + stall_after_s(session.plan.scenario)
        self._asked = False

    def noticed(self) -> Notice | None:
        """What is noticed of this fault."""
        found = self._session.road.noticed()
        if found is None or found.noticed_ns is None or found.noticed_ns >= self._fault_ns:
            return found
        if not self._asked and time.monotonic() > self._ask_s:
            self._session.layout.collect_now.touch(mode=0o600)
            self._asked = True
        return None


def collect(session: Session, *, since_s: float) -> None:
    """Wait until the evidence is in, at most until `within_s` after `since_s` (monotonic: the confirmed fault)."""
    left_s = max(0.0, since_s + session.plan.deadlines.within_s - time.monotonic())

    def probe() -> bool | None:
        if session.road.is_complete(job_over=session.job_over()):
            return True
        _let_torch_end_it(session)
        return True if session.job_over() else None

    complete = session.waiter.until(probe, deadline_s=left_s) is not None
    if not complete and session.plan.scenario.recorder.trigger is Trigger.COLLECTOR:
        session.layout.collect_now.touch(mode=0o600)
        session.waiter.until(probe, deadline_s=ASKED_S)
    why = "the evidence is in" if complete else f"not complete within {session.plan.deadlines.within_s:g} s"
    session.tell("collect", "collected", {"complete": complete, "why": why}, why)


def tear_down(session: Session, teardown: Teardown, *, healthy: bool) -> None:
    """Put the evidence through one teardown."""
    session.tell("teardown", "teardown", {"name": teardown.value}, teardown.value)
    if teardown is Teardown.RESTART:
        _wait_for_restart(session)
        return
    if teardown is Teardown.OOM_KILL:  # the word lets held ranks go, and memory must run out while they are there
        session.undergo(teardown)
        session.tell_teardown()
    else:
        session.tell_teardown()  # first, so that a released job cannot look recovered
        session.undergo(teardown)  # before anything is released: a rank that goes on could write once more
    session.release()
    session.end_job(kill=teardown is Teardown.PROCESS_KILL, in_time=session.job_over() or not healthy)


def _trouble(session: Session) -> str:
    """What keeps a host of a job on several from its part; "" for nothing."""
    if session.nodes is None:
        return ""
    return next(iter(session.nodes.problems()), "") or session.nodes.trouble()


def _let_torch_end_it(session: Session) -> None:
    """Where torch is alone: once the other ranks are gone no dump comes any more, and torchrun would wait 30 s.

    The collector's road needs the stalled rank as it is: a rank that hangs alone is a hang too. A link that is cut
    stays cut: what torchrun does then is part of what is drilled.
    """
    scenario = session.plan.scenario
    alone = scenario.recorder.trigger is not Trigger.COLLECTOR and not scenario.fault.on_host
    if alone and session.fault.state is FaultState.CONFIRMED and session.others_are_gone():
        session.release()


def _wait_for_restart(session: Session) -> None:
    """Let torchrun end the attempt and start the next one, until all of its ranks run or the job is over."""
    expected = set(session.plan.expected_ranks)

    def probe() -> bool | None:
        counts = session.control.operations()
        again = {key.rank for key, count in counts.items() if key.attempt > 0 and count > 0}
        if session.others_are_gone():
            session.release()
        return True if again >= expected or session.job_over() else None

    if session.waiter.until(probe, deadline_s=session.plan.deadlines.restart_s) is None:
        session.journal.write("remark", {"text": "the job was not restarted in time"})


def _ranks_text(ranks: tuple[int, ...]) -> str:
    return ", ".join(f"rank {rank}" for rank in ranks) if ranks else "no fault"
