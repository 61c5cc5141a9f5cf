"""arrived-in-time: the last dump that was needed arrived within expect.within_s of the fault being confirmed.

Read from the record alone: the time of the pull, or of the file where torch wrote it and its time lies in the run.
"""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import (
    confirmed_ns,
    expected_ranks,
    hang_artifacts,
    made_ns,
)
from hangdrill.model.run import RecordedRun

__all__ = ["CHECK", "limit_s"]


def limit_s(run: RecordedRun) -> float:
    """expect.within_s, or its default: three times the timeout and ten seconds."""
    within_s = run.scenario.expect.within_s
    return 3 * run.scenario.job.timeout_s + 10 if within_s is None else within_s


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    if not expected:
        return None
    since_ns = confirmed_ns(run)
    findings = {rank: _judge_rank(run, rank, since_ns) for rank in expected}
    return by_rank(findings, _summary(run, expected, since_ns), "raise expect.within_s, or shorten job.timeout_s")


def _judge_rank(run: RecordedRun, rank: int, since_ns: int | None) -> Finding:
    if since_ns is None:
        return unknown("the fault was never confirmed, so there is nothing to measure from")
    arrival_ns = _first_arrival_ns(run, rank)
    if arrival_ns is None:
        return unknown("no dump arrived")
    after_s = (arrival_ns - since_ns) / 1e9
    if after_s > limit_s(run):
        return failed(f"arrived {after_s:.1f} s after the fault, later than the {limit_s(run):g} s allowed")
    return passed()


def _first_arrival_ns(run: RecordedRun, rank: int) -> int | None:
    return min((made_ns(run, artifact) for artifact in hang_artifacts(run, rank)), default=None)


def _summary(run: RecordedRun, expected: tuple[int, ...], since_ns: int | None) -> str:
    arrivals_ns = [arrival_ns for rank in expected if (arrival_ns := _first_arrival_ns(run, rank)) is not None]
    if since_ns is None or not arrivals_ns:
        return ""
    after_s = (max(arrivals_ns) - since_ns) / 1e9
    return f"the last dump arrived {after_s:.1f} s after the fault (limit {limit_s(run):g} s)"


CHECK = Check(
    name="arrived-in-time",
    claim="The last needed dump arrived within expect.within_s of the fault being confirmed.",
    judge=_judge,
)
