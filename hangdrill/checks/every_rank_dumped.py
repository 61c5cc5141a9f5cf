"""every-rank-dumped: each expected rank left a dump or a trace of the hang; for a missing one, why and what helps."""

from hangdrill.checks.arrival_known import known_arrival, role_of
from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import (
    expected_ranks,
    fault_took,
    hang_artifacts,
    judged_attempt,
    somebody_looked,
)
from hangdrill.checks.hosts import lost_hosts, node_of
from hangdrill.checks.place import why_not_written
from hangdrill.checks.words import count_text, ranks_text
from hangdrill.model.run import PullReason, RecordedRun
from hangdrill.model.scenario import Trigger
from hangdrill.model.verdict import Verdict

__all__ = ["CHECK"]


def _judge(run: RecordedRun) -> Answer:
    expected = expected_ranks(run)
    if not expected:
        return _judge_nothing_expected(run)
    arrived = [rank for rank in expected if hang_artifacts(run, rank)]
    findings = {rank: passed() if rank in arrived else _judge_missing(run, rank) for rank in expected}
    summary = f"{len(arrived)} of {count_text(len(expected), 'dump')} arrived"
    answer = by_rank(findings, "")
    detail = "; ".join(text for text in (summary, answer.detail, _surprise(run, expected)) if text)
    return Answer(verdict=answer.verdict, ranks=answer.ranks, detail=detail, mend=answer.mend)


def _judge_missing(run: RecordedRun, rank: int) -> Finding:
    if not fault_took(run):
        return unknown("missing, but the fault was never confirmed, so no dump was due")
    if not somebody_looked(run):
        return unknown("nobody looked: there is no manifest and no inspection")
    if reason := why_not_written(run):
        return reason
    if (node := node_of(run, rank)) is not None and node in lost_hosts(run):
        return failed(
            f"missing: {_collector_notes(run, rank) or f'its host {node.host} was lost'}",
            "its host itself is gone; expect.dumps names the ranks whose dumps can be had",
        )
    row = known_arrival(run)
    if row is not None and role_of(run, rank) not in row.dumping:
        return failed(f"missing: {row.why}", row.mend)
    return _unexplained(run, rank)


def _unexplained(run: RecordedRun, rank: int) -> Finding:
    """No place, no lost host and nothing known of torch explains it."""
    if run.manifest is None and run.scenario.recorder.trigger is Trigger.COLLECTOR:
        return failed("missing: the collector wrote no manifest: it ended at its start", "read collector.log")
    notes = _collector_notes(run, rank)
    return failed(
        "missing: " + (notes or "no road brought anything, and nothing known of torch explains it"),
        "read job.log and evidence/manifest.json",
    )


def _collector_notes(run: RecordedRun, rank: int) -> str:
    """What the collector saw of the rank, in its own words."""
    attempt = judged_attempt(run)
    pulls = run.manifest.ranks if run.manifest is not None else ()
    pull = next((pull for pull in pulls if pull.rank == rank and pull.attempt == attempt), None)
    if pull is None:
        return ""
    return ", ".join([f"the process was last seen {pull.state.value}", *pull.notes])


def _surprise(run: RecordedRun, expected: tuple[int, ...]) -> str:
    """A dump of a rank that was not expected is good news, worth a remark."""
    others = [rank for rank in range(run.scenario.job.world_size) if rank not in expected and hang_artifacts(run, rank)]
    return f"{ranks_text(others)} left one too, which was not expected" if others else ""


def _judge_nothing_expected(run: RecordedRun) -> Answer:
    """A negative control: nothing may have been taken for a hang."""
    taken = sorted({artifact.rank for artifact in run.artifacts if artifact.reason is not PullReason.EXIT})
    if taken:
        return Answer(
            verdict=Verdict.FAIL, detail=f"{ranks_text(taken)} left evidence of a hang, but none was expected"
        )
    if run.manifest is None:
        return Answer(
            verdict=Verdict.UNKNOWN, detail="there is no manifest, so nobody can say that no hang was noticed"
        )
    if run.manifest.noticed_ns is not None:
        notice = run.manifest.notice or "a hang"
        return Answer(verdict=Verdict.FAIL, detail=f"the collector noticed {notice}, but no hang was expected")
    return Answer(verdict=Verdict.PASS, detail="no hang was noticed and no rank left evidence of one")


CHECK = Check(
    name="every-rank-dumped",
    claim="Each expected rank left a dump or a trace because of the hang; where none was expected, none was taken.",
    judge=_judge,
)
