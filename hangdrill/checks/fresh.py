"""fresh: the dump is of this run and attempt, by the times inside it: a file's own time can be new on old content."""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import absence, artifact_of, best_dump, dumps_of, expected_ranks, judged_agents
from hangdrill.model.dump import RankDump
from hangdrill.model.run import AgentFacts, RecordedRun

__all__ = ["CHECK"]

TOLERANCE_NS = 2_000_000_000
"""For the clocks of two hosts. An attempt of a job takes longer than this only to import torch."""

LIVE_ROADS = ("handler", "fr_trace_json", "dump_nccl_trace_json")
"""Answers of the living process over a socket that belongs to this run: no file of an earlier run can come this way."""


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    if not expected:
        return None
    agents = judged_agents(run)
    findings = {rank: _judge_rank(run, rank, agents.get(rank)) for rank in expected}
    return by_rank(
        findings,
        "the newest operation of every dump lies within the run",
        "an earlier run wrote this file: give each job a directory of its own",
    )


def _judge_rank(run: RecordedRun, rank: int, agent: AgentFacts | None) -> Finding:
    dumps = dumps_of(run, rank)
    if not dumps:
        return unknown(absence(run, rank))
    for dump in dumps:
        problem = _problem(run, dump, agent)
        if problem:
            return failed(f"{_name(dump)}: {problem}")
    best = best_dump(run, rank)
    return passed() if best is not None and _newest_ns(best) is not None else _judge_timeless(run, dumps[0])


def _problem(run: RecordedRun, dump: RankDump, agent: AgentFacts | None) -> str:
    newest_ns = _newest_ns(dump)
    if newest_ns is None:
        return ""
    earliest_ns = max(run.started_ns, agent.started_ns if agent is not None else 0)
    if newest_ns < earliest_ns - TOLERANCE_NS:
        return f"its newest operation is {(earliest_ns - newest_ns) / 1e9:.1f} s older than the attempt: a stale file"
    if newest_ns > run.ended_ns + TOLERANCE_NS:
        return f"its newest operation lies {(newest_ns - run.ended_ns) / 1e9:.1f} s after the end of the run"
    return ""


def _judge_timeless(run: RecordedRun, dump: RankDump) -> Finding:
    """No operation, so no time inside: only the road can tell."""
    artifact = artifact_of(run, dump)
    if artifact is not None and artifact.road in LIVE_ROADS:
        return passed("no operation with a time in it; pulled from the living process")
    return unknown("no operation with a time in it, so nothing tells how old it is")


def _newest_ns(dump: RankDump) -> int | None:
    return max((operation.created_ns for operation in dump.operations), default=None)


def _name(dump: RankDump) -> str:
    return dump.path.rsplit("/", maxsplit=1)[-1]


CHECK = Check(
    name="fresh",
    claim="The newest operation in each dump happened within this run and attempt (2 s of tolerance).",
    judge=_judge,
)
