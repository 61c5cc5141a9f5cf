"""arrival-as-known: the ranks that left a dump are those that the arrival table says; a torch that changed is noticed.

Not whether the evidence suffices (that is every-rank-dumped): on a road known to lose dumps, losing them passes.
"""

from hangdrill.arrival import Arrival, Role, expected_arrival
from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed
from hangdrill.checks.evidence import fault_took, hang_artifacts, judged_agents, somebody_looked
from hangdrill.checks.hosts import lost_hosts, node_of
from hangdrill.checks.words import ranks_text
from hangdrill.model.run import RecordedRun
from hangdrill.model.scenario import FaultKind
from hangdrill.model.verdict import Verdict

__all__ = ["CHECK", "known_arrival", "role_of"]

HARMLESS = (FaultKind.NONE, FaultKind.SLOW)
BY_THE_SCRIPT = "the script may have written it: torch itself is not known to"
MEND = "if this torch is new, it has changed: measure it again and bring hangdrill/arrival/table.py up to date"


def known_arrival(run: RecordedRun) -> Arrival | None:
    """The measured row for what ran, from the agents where they reported."""
    agents = judged_agents(run)
    agent = agents[min(agents)] if agents else None
    return expected_arrival(
        torch=agent.torch if agent else "",
        backend_class=agent.backend_class if agent else "",
        backend_requested=run.scenario.job.backend,
        trigger=run.scenario.recorder.trigger,
        fault=run.scenario.fault.kind,
        interval_s=run.scenario.recorder.debug_server_interval_s,
    )


def role_of(run: RecordedRun, rank: int) -> Role:
    """What the rank is in this drill."""
    fault, node = run.scenario.fault, node_of(run, rank)
    on_the_host = fault.on_host and node is not None and node.node == fault.host_node
    return Role.STALLED if on_the_host or rank in fault.targets else Role.WAITING


def _judge(run: RecordedRun) -> Answer | None:
    if run.scenario.fault.kind in HARMLESS or run.scenario.expect.dumps == "none":
        return None
    row = known_arrival(run)
    if row is None:
        return _unknown("nothing was measured of this torch, backend and road")
    if not fault_took(run):
        return _unknown("the fault was never confirmed, so no dump was due")
    if not somebody_looked(run):
        return _unknown("nobody looked: there is no manifest and no inspection")
    ranks = range(run.scenario.job.world_size)
    findings = {rank: _judge_rank(run, rank, row) for rank in ranks}
    by_the_script = any(finding.text == BY_THE_SCRIPT for finding in findings.values())
    why = "" if by_the_script else f", as known: {row.why}"
    return by_rank(findings, f"{_arrived(run)}{why}", MEND)


def _judge_rank(run: RecordedRun, rank: int, row: Arrival) -> Finding:
    role, arrived = role_of(run, rank), bool(hang_artifacts(run, rank))
    if (node := node_of(run, rank)) is not None and node in lost_hosts(run):
        return passed()
    if role in row.perhaps or arrived == (role in row.dumping):
        return passed()
    if arrived and run.scenario.job.script is not None:
        return passed(BY_THE_SCRIPT)
    if arrived:
        return failed(f"a dump arrived, though it is known not to: {row.why}")
    return failed(f"no dump arrived, though one is known to: {row.why}")


def _arrived(run: RecordedRun) -> str:
    ranks = [rank for rank in range(run.scenario.job.world_size) if hang_artifacts(run, rank)]
    return f"{ranks_text(ranks)} left a dump" if ranks else "no rank left a dump"


def _unknown(detail: str) -> Answer:
    return Answer(verdict=Verdict.UNKNOWN, detail=detail)


CHECK = Check(
    name="arrival-as-known",
    claim="The ranks that left a dump are those that are known to, with this torch, backend, road and fault.",
    judge=_judge,
)
