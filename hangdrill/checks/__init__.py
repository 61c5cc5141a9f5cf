"""The dump contract: one claim about a recorded drill in each file, judged from the run directory alone.

`run_checks` gives the results in the order of `ALL`. A check that raises is UNKNOWN with the exception's text; a check
that does not apply to the drill is left out; lack of evidence is UNKNOWN and never PASS. Reading files, processes and
torch have no place here.
"""

from hangdrill.checks import (
    agents_agree,
    arrival_known,
    arrived_in_time,
    backend,
    culprit,
    delivered,
    every_rank_dumped,
    fault_confirmed,
    fresh,
    has_entries,
    hashes,
    hook_called,
    job_ended,
    nothing_left,
    own_dump,
    owner_and_mode,
    parses,
    path_and_name,
    restart_kept,
    retained,
    sequence_ids,
    size,
    survives,
    window,
)
from hangdrill.checks.base import Answer, Check
from hangdrill.model.run import CheckResult, RecordedRun
from hangdrill.model.verdict import Verdict

__all__ = ["ALL", "Answer", "Check", "run_check", "run_checks"]

ALL: tuple[Check, ...] = (
    fault_confirmed.CHECK,
    agents_agree.CHECK,
    every_rank_dumped.CHECK,
    arrival_known.CHECK,
    arrived_in_time.CHECK,
    path_and_name.CHECK,
    owner_and_mode.CHECK,
    size.CHECK,
    fresh.CHECK,
    own_dump.CHECK,
    parses.CHECK,
    has_entries.CHECK,
    backend.CHECK,
    sequence_ids.CHECK,
    window.CHECK,
    hashes.CHECK,
    restart_kept.CHECK,
    *survives.CHECKS,
    delivered.CHECK,
    retained.CHECK,
    hook_called.CHECK,
    culprit.CHECK,
    job_ended.CHECK,
    nothing_left.CHECK,
)


def run_checks(run: RecordedRun) -> tuple[CheckResult, ...]:
    """Judge a recorded drill: the results of all checks that apply to it, in the order of ALL."""
    results = (run_check(check, run) for check in ALL)
    return tuple(result for result in results if result is not None)


def run_check(check: Check, run: RecordedRun) -> CheckResult | None:
    """One check's result; None where it does not apply. An exception inside a check becomes UNKNOWN."""
    try:
        answer = check.judge(run)
    except Exception as error:  # a crashed checker knows nothing, whatever crashed it
        answer = Answer(
            verdict=Verdict.UNKNOWN,
            detail=f"the check itself failed: {type(error).__name__}: {error}",
            mend="this is a bug in hangdrill: report it with the run directory",
        )
    if answer is None:
        return None
    return CheckResult(
        name=check.name,
        verdict=answer.verdict,
        ranks={str(rank): verdict for rank, verdict in sorted(answer.ranks.items())},
        detail=answer.detail,
        mend=answer.mend,
    )
