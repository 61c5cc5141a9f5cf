"""has-entries: a dump has operations in it. A wrong backend gives a valid, empty file that looks like success."""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.counts import recordable
from hangdrill.checks.evidence import absence, best_dump, expected_ranks, fault_took, judged_agents
from hangdrill.checks.words import range_text
from hangdrill.model.run import AgentFacts, RecordedRun

__all__ = ["CHECK"]


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    if not expected:
        return None
    agents = judged_agents(run)
    findings = {rank: _judge_rank(run, rank, agents.get(rank)) for rank in expected}
    counts = [len(dump.operations) for rank in expected if (dump := best_dump(run, rank)) is not None]
    summary = f"{range_text(min(counts), max(counts))} operations a rank" if counts else ""
    return by_rank(findings, summary, "was the right backend asked? a wrong one gives a valid, empty dump")


def _judge_rank(run: RecordedRun, rank: int, agent: AgentFacts | None) -> Finding:
    dump = best_dump(run, rank)
    if dump is None:
        return unknown(absence(run, rank))
    if dump.operations:
        return passed("active operations only, no history" if dump.only_active else "")
    if dump.only_active and any(status.last_enqueued >= 0 for status in dump.status):
        return passed("no active operation and no history: only pg_status says where it stands")
    if agent is not None and agent.groups and not any(recordable(agent, group) for group in agent.groups):
        return passed("empty, and rightly so: the rank had not entered any operation that the recorder knows")
    if not fault_took(run):
        return unknown(
            "a valid dump without any operation, but the fault was never confirmed: the job may not have begun"
        )
    return failed("a valid dump without any operation")


CHECK = Check(
    name="has-entries",
    claim="Every dump has operations in it, or at least says by pg_status where the rank stands.",
    judge=_judge,
)
