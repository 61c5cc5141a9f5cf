"""fresh: the dump is of this run and attempt, by the times inside it: a file's own time can be new on old content.

The times are the rank's own, moved to the controller's clock by what its clock is ahead (`drill.clocks`), so a host
that is minutes off neither makes a fresh dump stale nor a stale one fresh. Where that is not known, they are compared
with the rank's own start alone. A file that was there before the drill and is still the same needs no clock.
"""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import (
    BEFORE,
    COLLECTED,
    absence,
    artifact_of,
    best_dump,
    dumps_of,
    expected_ranks,
    facts_at,
    judged_agents,
    judged_attempt,
    native_path,
)
from hangdrill.model.dump import RankDump
from hangdrill.model.run import RankClock, RecordedRun

__all__ = ["CHECK", "stale_reason"]

TOLERANCE_NS = 2_000_000_000
"""For what two clocks still differ. An attempt of a job takes longer than this only to import torch."""

SAME_NS = 1_000_000_000
"""Clocks that differ by less are taken for the same."""

LIVE_ROADS = ("handler", "fr_trace_json", "dump_nccl_trace_json")
"""Answers of the living process over a socket that belongs to this run: no file of an earlier run can come this way."""
NATIVE_ROADS = ("native", "debug-server")


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    if not expected:
        return None
    findings = {rank: _judge_rank(run, rank) for rank in expected}
    return by_rank(
        findings,
        "the newest operation of every dump lies within the run",
        "an earlier run wrote this file: give each job a directory of its own",
    )


def _judge_rank(run: RecordedRun, rank: int) -> Finding:
    dumps = dumps_of(run, rank)
    if not dumps:
        return unknown(absence(run, rank))
    for dump in dumps:
        if reason := stale_reason(run, dump):
            return failed(f"{_name(dump)}: {reason}")
    doubt = next(filter(None, (_doubt(run, dump) for dump in dumps)), "")
    if doubt:
        return unknown(doubt, "read control/*.facts.json: its times against those of the file")
    best = best_dump(run, rank)
    if best is not None and _newest_ns(best) is not None:
        return passed(_clock_text(_clock_of(run, rank)))
    return _judge_timeless(run, dumps[0])


def stale_reason(run: RecordedRun, dump: RankDump) -> str:
    """Why a dump is not of this run; "" when it may be."""
    if _was_there_before(run, dump):
        return "it was there before the drill began, and nothing has written it since: a stale file"
    newest_ns, earliest_ns = _newest_ns(dump), _earliest_ns(run, dump.rank)
    if newest_ns is None or earliest_ns is None:
        return ""
    if newest_ns < earliest_ns - TOLERANCE_NS:
        ahead = _clock_text(_clock_of(run, dump.rank))
        own = f" ({ahead}, which is taken into account)" if ahead else ""
        return (
            f"its newest operation is {(earliest_ns - newest_ns) / 1e9:.1f} s older than the attempt{own}: a stale file"
        )
    if newest_ns > run.ended_ns + TOLERANCE_NS and _clock_of(run, dump.rank) is not None:
        return f"its newest operation lies {(newest_ns - run.ended_ns) / 1e9:.1f} s after the end of the run"
    return ""


def _earliest_ns(run: RecordedRun, rank: int) -> int | None:
    """No operation of the rank can be older. Without its clock only its own start tells, by the same clock."""
    agent = judged_agents(run).get(rank)
    started_ns = agent.started_ns if agent is not None else 0
    if _clock_of(run, rank) is not None:
        return max(run.started_ns, started_ns)
    return started_ns or None


def _was_there_before(run: RecordedRun, dump: RankDump) -> bool:
    artifact = artifact_of(run, dump)
    if artifact is None or artifact.road not in NATIVE_ROADS:
        return False
    path = native_path(run, dump.rank)
    before, after = facts_at(run.files, path, BEFORE), facts_at(run.files, path, COLLECTED)
    if before is None or after is None or not before.exists:
        return False
    return (before.sha256, before.mtime_ns) == (after.sha256, after.mtime_ns)


def _doubt(run: RecordedRun, dump: RankDump) -> str:
    """What two clocks would have to tell, when one of them is not known."""
    newest_ns = _newest_ns(dump)
    if newest_ns is None or _clock_of(run, dump.rank) is not None:
        return ""
    if newest_ns > run.ended_ns + TOLERANCE_NS or (
        _earliest_ns(run, dump.rank) is None and newest_ns < run.started_ns - TOLERANCE_NS
    ):
        return f"{_name(dump)}: by its times it is not of this run, but nothing is known of this rank's clock"
    return ""


def _clock_of(run: RecordedRun, rank: int) -> RankClock | None:
    attempt = judged_attempt(run)
    return next((clock for clock in run.clocks if (clock.rank, clock.attempt) == (rank, attempt)), None)


def _clock_text(clock: RankClock | None) -> str:
    """Nothing of a clock that is right."""
    if clock is None or abs(clock.ahead_ns) < SAME_NS:
        return ""
    side = "ahead of" if clock.ahead_ns > 0 else "behind"
    return f"its clock is {abs(clock.ahead_ns) / 1e9:.1f} s {side} the controller's"


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
