"""own-dump: a dump that bears a rank's name was recorded by that rank, not by one of another job or host.

Nothing in a dump says who wrote it, so two jobs that share a path overwrite each other's dumps unseen. But the agent
has kept when its rank entered the last operation of each group, and who the members are: another's history differs.
"""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import absence, artifact_of, dumps_of, expected_ranks, fault_reports, judged_agents
from hangdrill.checks.fresh import stale_reason
from hangdrill.checks.words import list_text, ranks_text
from hangdrill.model.dump import Operation, RankDump
from hangdrill.model.run import AgentFacts, GroupCount, RecordedRun

__all__ = ["CHECK", "foreign_reason"]

TOLERANCE_NS = 1_000_000_000
"""Between the agent's hook and the recorder's; microseconds, but for a rank that loses its core just there."""


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    if not expected:
        return None
    findings = {rank: _judge_rank(run, rank) for rank in expected}
    return by_rank(
        findings,
        "every dump's last operations are those that its rank entered, at that time",
        "give each job a directory of its own, and each host too: put the job's id into TORCH_FR_DUMP_TEMP_FILE",
    )


def _judge_rank(run: RecordedRun, rank: int) -> Finding:
    dumps = dumps_of(run, rank)
    if not dumps:
        return unknown(absence(run, rank))
    agent = judged_agents(run).get(rank)
    if agent is None or not agent.groups:
        return unknown("no agent said what its rank entered")
    for dump in dumps:
        if reason := foreign_reason(run, dump):
            name = dump.path.rsplit("/", maxsplit=1)[-1]
            return failed(f"{name} was written by another job or host: {reason}")
    if any(stale_reason(run, dump) for dump in dumps):
        return unknown("a stale file: see fresh")
    return passed()


def foreign_reason(run: RecordedRun, dump: RankDump) -> str:
    """What in a dump cannot be of the rank whose name it bears; "" when nothing is."""
    agent = judged_agents(run).get(dump.rank)
    if agent is None or not agent.groups or stale_reason(run, dump):
        return ""
    artifact = artifact_of(run, dump)
    pulled_ns = None if artifact is None else artifact.pulled_ns
    return (
        _other_members(dump, agent, run.scenario.job.world_size)
        or _other_times(dump, agent, pulled_ns)
        or _after_the_fault(run, dump)
    )


def _other_members(dump: RankDump, agent: AgentFacts, world_size: int) -> str:
    """gloo writes the members of whichever group was made last, this rank's or not, under no name."""
    known = {frozenset(group.ranks) for group in agent.groups}
    strange = [
        group
        for group in dump.groups
        if (group.name and group.ranks and frozenset(group.ranks) not in known)
        or max(group.ranks, default=0) >= world_size
    ]
    if not strange:
        return ""
    of = ranks_text(list(strange[0].ranks))
    own = list_text([ranks_text(sorted(ranks)) for ranks in known], most=3)
    return f"it has a group of {of}, and this rank's are of {own}"


def _other_times(dump: RankDump, agent: AgentFacts, pulled_ns: int | None) -> str:
    """What the rank entered after the pull cannot be in its dump."""
    for group in agent.groups:
        operation = _last_of(dump, group)
        went_on = pulled_ns is not None and group.last_operation_ns > pulled_ns
        if operation is None or not group.last_operation_ns or went_on:
            continue
        apart_ns = operation.created_ns - group.last_operation_ns
        if abs(apart_ns) > TOLERANCE_NS:
            side = "after" if apart_ns > 0 else "before"
            title = f"{operation.name} #{operation.sequence} of {group.desc or group.name}"
            return f"its {title} was begun {abs(apart_ns) / 1e9:.1f} s {side} this rank's own"
    return ""


def _after_the_fault(run: RecordedRun, dump: RankDump) -> str:
    """The rank that the fault was placed on had entered all that came before that place."""
    for report in fault_reports(run):
        if report.rank != dump.rank or not report.sequence:
            continue
        for item in dump.operations:
            in_group = report.group in (item.group_name, item.group_desc)
            late_ns = item.created_ns - report.time_ns
            if in_group and not item.p2p and item.sequence < report.sequence and late_ns > TOLERANCE_NS:
                title = f"{item.name} #{item.sequence} of {item.group_desc or item.group_name}"
                return f"its {title} was begun {late_ns / 1e9:.1f} s after the fault that this rank met behind its own"
    return ""


def _last_of(dump: RankDump, group: GroupCount) -> Operation | None:
    """The operation that the agent counted last; its time is only known where no p2p went between."""
    if group.p2p:
        return None
    return next(
        (
            item
            for item in reversed(dump.operations)
            if item.group_name == group.name and not item.p2p and item.sequence == group.collectives
        ),
        None,
    )


CHECK = Check(
    name="own-dump",
    claim="Every dump was recorded by the rank whose name it bears, not by one of another job or host.",
    judge=_judge,
)
