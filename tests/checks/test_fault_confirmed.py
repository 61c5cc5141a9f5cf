"""An early end is said where the user looks first."""

from healthy_runs import held_run, mutate, mutate_each

from hangdrill.checks import run_check
from hangdrill.checks.fault_confirmed import CHECK
from hangdrill.model.run import RankExit
from hangdrill.model.verdict import Verdict


def test_unconfirmed_fault_names_the_error_that_ended_the_script():
    ended = RankExit(
        rank=0, status="exception", exception_type="SyntaxError", exception_message="invalid syntax\nmore", time_ns=1
    )
    base = held_run()
    reports = mutate_each(base.manifest.ranks, lambda pull: mutate(pull, exit=ended), rank=0)
    run = mutate(base, faults=(), manifest=mutate(base.manifest, ranks=reports))
    answer = run_check(CHECK, run)
    assert answer is not None
    assert answer.verdict is Verdict.UNKNOWN
    assert "rank 0 raised SyntaxError: invalid syntax" in answer.detail
    assert "more" not in answer.detail


def test_a_place_that_the_job_never_comes_to_is_told_with_what_it_came_to():
    run = mutate(held_run(), faults=())
    answer = run_check(CHECK, run)
    assert answer is not None
    assert answer.verdict is Verdict.UNKNOWN
    count = run.agents[1].groups[0].collectives
    assert f"it entered {count} collectives of " in answer.detail
    assert "hold an earlier operation" in answer.mend
