"""sequence-ids: the last sequence id of every group in every rank's dump equals the agent's own count.

The agent counts an operation when the rank enters it. A rank may go on after its evidence was pulled (a released hold),
so the agent may be ahead, but only in a group whose last operation was entered after the pull. gloo records no p2p, so
p2p is not compared.
"""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.counts import GLOO, default_group, enqueued_collectives, last_sequence, prefix_of
from hangdrill.checks.evidence import absence, artifact_of, best_dump, expected_ranks, judged_agents, made_ns
from hangdrill.checks.fresh import stale_reason
from hangdrill.checks.own_dump import foreign_reason
from hangdrill.checks.words import count_text, list_text
from hangdrill.model.dump import RankDump
from hangdrill.model.run import AgentFacts, GroupCount, RecordedRun

__all__ = ["CHECK"]

WENT_ON = "went on after the pull"


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    if not expected:
        return None
    agents = judged_agents(run)
    findings = {rank: _judge_rank(run, rank, agents.get(rank)) for rank in expected}
    compared = sum(len(agents[rank].groups) for rank in expected if rank in agents)
    summary = f"{count_text(compared, 'count')} of the agents met again in the dumps{_p2p_remark(agents)}"
    return by_rank(findings, summary, "the recorder lost or invented operations: compare the dump with control/*.ops")


def _judge_rank(run: RecordedRun, rank: int, agent: AgentFacts | None) -> Finding:
    dump = best_dump(run, rank)
    if dump is None:
        return unknown(absence(run, rank))
    if dump.salvaged:
        return unknown("the dump is cut, so its last sequence id is not known")
    if stale_reason(run, dump) or foreign_reason(run, dump):
        return unknown("the dump is not this rank's own: see fresh and own-dump")
    if agent is None or not agent.groups:
        return unknown("no agent counted its operations")
    artifact = artifact_of(run, dump)
    pulled_ns = made_ns(run, artifact) if artifact is not None else None
    if dump.only_active:
        return _judge_status(dump, agent, pulled_ns)
    return _judge_history(dump, agent, pulled_ns)


def _judge_history(dump: RankDump, agent: AgentFacts, pulled_ns: int | None) -> Finding:
    unheard = sorted({item.group_name for item in dump.operations} - {group.name for group in agent.groups})
    if unheard:
        return failed(f"the dump has group {list_text(unheard)}, which the agent never saw")
    went_on = False
    for group in agent.groups:
        last = last_sequence(dump, group.name)
        problem = _problem(group, last, pulled_ns)
        if problem:
            return failed(problem)
        went_on = went_on or last < group.collectives
    return passed(WENT_ON if went_on else "")


def _judge_status(dump: RankDump, agent: AgentFacts, pulled_ns: int | None) -> Finding:
    """A trace has no history; pg_status still says how far the default group came."""
    group = default_group(agent)
    if group is None:
        return unknown("the agent knows no default group to compare the trace with")
    enqueued = enqueued_collectives(dump, agent, group)
    if enqueued is None:
        return unknown("only a trace, whose pg_status cannot be compared")
    problem = _problem(group, enqueued, pulled_ns)
    if problem:
        return failed(f"by pg_status, {problem}")
    return passed("only a trace: compared by pg_status of the default group")


def _problem(group: GroupCount, last: int, pulled_ns: int | None) -> str:
    """Empty when the dump's last sequence fits the agent's count."""
    if last == group.collectives:
        return ""
    name = group.desc or group.name
    if last > group.collectives:
        return f"{name} is at #{last} in the dump, but the agent counted {group.collectives}"
    if pulled_ns is not None and group.last_operation_ns > pulled_ns:
        return ""
    return f"{name} ends at #{last} in the dump, but the agent counted {group.collectives} before the pull"


def _p2p_remark(agents: dict[int, AgentFacts]) -> str:
    skipped = any(group.p2p and prefix_of(agent, group) == GLOO for agent in agents.values() for group in agent.groups)
    return "; p2p is not recorded by gloo, so not compared" if skipped else ""


CHECK = Check(
    name="sequence-ids",
    claim="For every rank and group, the last sequence id in the dump is the agent's own count of operations.",
    judge=_judge,
)
