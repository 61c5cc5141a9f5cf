"""fault-confirmed: the fault took on each rank it was placed on, by the rank's own report, and on no other."""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import fault_reports, judged_agents
from hangdrill.checks.hosts import host_fault
from hangdrill.checks.words import ranks_text
from hangdrill.model.run import AgentFacts, FaultReport, RecordedRun
from hangdrill.model.scenario import FaultKind
from hangdrill.model.verdict import Verdict

__all__ = ["CHECK"]

MOST_GROUPS = 3
MEND_EARLY_END = "the job may have ended before it got there: see job.log"
MEND_TOO_LATE = "the job may have ended before it got there: hold an earlier operation, or let it run longer"
MEND = "compare the fault of the scenario with what the agents report in control/"


def _judge(run: RecordedRun) -> Answer:
    if run.scenario.fault.kind is FaultKind.NONE:
        return _judge_no_fault(run)
    kind = run.scenario.fault.kind.value
    if run.scenario.fault.on_host:
        return _judge_host(run, kind)
    targets = run.scenario.fault.targets
    reports = {report.rank: report for report in fault_reports(run)}
    early, agents = _early_end(run), judged_agents(run)
    findings = {
        rank: _judge_target(kind, reports.get(rank), early, "" if early else _entered(agents.get(rank)))
        for rank in targets
    }
    strangers = sorted(reports.keys() - set(targets))
    findings.update({rank: failed(f"reports the fault {reports[rank].kind}, but is no target") for rank in strangers})
    return by_rank(findings, f"{kind} confirmed on {ranks_text(targets)}{_place(reports)}", MEND)


def _judge_host(run: RecordedRun, kind: str) -> Answer:
    """By the report of the host's node process."""
    node, report = run.scenario.fault.host_node, host_fault(run)
    if report is None:
        detail = f"node {node} never reported the fault {kind}{_problems(run)}{_early_end(run)}"
        return Answer(verdict=Verdict.UNKNOWN, detail=detail, mend=MEND_EARLY_END)
    if report.kind != kind:
        detail = f"node {node} reports the fault {report.kind} instead of {kind}"
        return Answer(verdict=Verdict.FAIL, detail=detail, mend=MEND)
    host = next(status.host for status in run.nodes if status.node == node)
    return Answer(verdict=Verdict.PASS, detail=f"{kind} confirmed on {host} (node {node}): {report.what}")


def _problems(run: RecordedRun) -> str:
    return "".join(f"; {status.host}: {status.problem}" for status in run.nodes if status.problem)


def _judge_target(kind: str, report: FaultReport | None, early_end: str, entered: str) -> Finding:
    if report is None:
        why = f"never reported the fault {kind}{early_end or entered}"
        return unknown(why, MEND_TOO_LATE if entered else MEND_EARLY_END)
    if report.kind != kind:
        return failed(f"reports the fault {report.kind} instead of {kind}")
    return passed()


def _entered(agent: AgentFacts | None) -> str:
    """ "; it entered 71 collectives of default_pg": all that the rank had to hold."""
    counts = [
        f"{count} {what} of {group.desc or group.name}"
        for group in (agent.groups if agent is not None else ())
        for count, what in ((group.collectives, "collectives"), (group.p2p, "sends and receives"))
        if count
    ]
    return f"; it entered {', '.join(counts[:MOST_GROUPS])}" if counts else ""


def _early_end(run: RecordedRun) -> str:
    """ "; rank 0 raised SyntaxError: invalid syntax": why nobody came to the place, as far as the ranks said it."""
    for pull in run.manifest.ranks if run.manifest is not None else ():
        if pull.exit is not None and pull.exit.complaint:
            return f"; rank {pull.rank} raised {pull.exit.complaint}"
    return ""


def _judge_no_fault(run: RecordedRun) -> Answer:
    if run.faults:
        ranks = ranks_text(report.rank for report in run.faults)
        return Answer(verdict=Verdict.FAIL, detail=f"{ranks} reports a fault, but none was to be placed", mend=MEND)
    if not judged_agents(run):
        return Answer(verdict=Verdict.UNKNOWN, detail="no agent reported, so nobody can say that there was no fault")
    return Answer(verdict=Verdict.PASS, detail="no fault was placed and none was reported")


def _place(reports: dict[int, FaultReport]) -> str:
    """ " before all_reduce #4 of 0", where the first report says so."""
    placed = [report for _, report in sorted(reports.items()) if report.op and report.sequence]
    return f" before {placed[0].op} #{placed[0].sequence}" if placed else ""


CHECK = Check(
    name="fault-confirmed",
    claim="Each chosen rank, or the chosen host, reported that the fault took, of the right kind, and no other did.",
    judge=_judge,
)
