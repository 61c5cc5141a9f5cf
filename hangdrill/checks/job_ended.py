"""job-ended: the job was over in time, and one that was to be healthy ended with status 0.

The limit for a hang is what the evidence may take and a minute for torchrun, which waits 30 s before it kills.
"""

from hangdrill.checks.arrived_in_time import limit_s
from hangdrill.checks.base import Answer, Check
from hangdrill.checks.evidence import fault_reports
from hangdrill.model.run import JournalEvent, RecordedRun
from hangdrill.model.scenario import FaultKind
from hangdrill.model.verdict import Verdict

__all__ = ["CHECK", "JOB_ENDED"]

JOB_ENDED = "job-ended"
"""The journal's event; `in_time: false` in its detail says that the controller had to end an overdue job."""

TEARDOWN_LIMIT_S = 60.0
HARMLESS = (FaultKind.NONE, FaultKind.SLOW)


def _judge(run: RecordedRun) -> Answer:
    end = next((event for event in reversed(run.journal) if event.name == JOB_ENDED), None)
    if end is None:
        return Answer(verdict=Verdict.UNKNOWN, detail="the journal has no end of the job", mend="hangdrill clean")
    if end.detail.get("in_time") is False:
        return _failed("the controller had to end the job past its deadline")
    if run.scenario.fault.kind in HARMLESS:
        return _judge_healthy(run, end)
    return _judge_faulted(run, end)


def _judge_healthy(run: RecordedRun, end: JournalEvent) -> Answer:
    if run.job_exit_code is None:
        return Answer(verdict=Verdict.UNKNOWN, detail="the job ended, but nobody knows its exit status")
    if run.job_exit_code != 0:
        return _failed(f"the job was to be healthy, but ended with status {run.job_exit_code}")
    return _passed(f"with status 0, {end.elapsed_s:.1f} s after the drill began")


def _judge_faulted(run: RecordedRun, end: JournalEvent) -> Answer:
    confirmed_ns = max((report.time_ns for report in fault_reports(run)), default=None)
    if confirmed_ns is None:
        return _passed(f"{end.elapsed_s:.1f} s after the drill began")
    after_s = (end.time_ns - confirmed_ns) / 1e9
    allowed_s = limit_s(run) + TEARDOWN_LIMIT_S
    if after_s > allowed_s:
        return _failed(f"the job ended {after_s:.1f} s after the fault, later than the {allowed_s:g} s allowed")
    return _passed(f"{after_s:.1f} s after the fault")


def _passed(detail: str) -> Answer:
    return Answer(verdict=Verdict.PASS, detail=detail)


def _failed(detail: str) -> Answer:
    return Answer(verdict=Verdict.FAIL, detail=detail, mend="see the end of job.log, and `hangdrill clean`")


CHECK = Check(
    name="job-ended",
    claim="The job was over in time; a job that was to be healthy ended with status 0.",
    judge=_judge,
)
