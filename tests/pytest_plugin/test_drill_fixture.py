"""The fixture `drill` and the marker: drills written in Python."""

from collections.abc import Callable
from typing import Any

import pytest

from hangdrill.model.scenario import FaultKind
from hangdrill.model.verdict import Verdict

Run = Callable[..., pytest.RunResult]


def test_words_make_a_scenario(fake_drill: Any, inner: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_it(drill):
            drilled = drill(workload="ddp", nproc=4, hold=1, before="all_reduce:4", group=[0, 1], timeout_s=3)
            drilled.assert_passed()
            assert drilled.culprits == (1,)
            assert drilled.run_dir.name == "1-ddp-hold-r1"
    """)
    inner().assert_outcomes(passed=1)
    scenario = fake_drill.calls[0]["scenario"]
    assert (scenario.fault.kind, scenario.fault.targets, scenario.job.timeout_s) == (FaultKind.HOLD, (1,), 3)
    before = scenario.fault.before
    assert (before.op, before.nth, before.group) == ("all_reduce", 4, (0, 1))


def test_a_name_or_a_scenario_is_drilled_too(fake_drill: Any, inner: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from hangdrill.model.scenario import Job, Scenario, WorkloadName
        def test_it(drill):
            drill("quick/ddp-hold").assert_passed()
            drill(Scenario(title="t", job=Job(workload=WorkloadName.DDP))).assert_passed()
    """)
    inner().assert_outcomes(passed=1)
    assert [call["name"] for call in fake_drill.calls] == ["quick/ddp-hold", "test_it"]
    assert len({call["run_dir"] for call in fake_drill.calls}) == 2


def test_the_marker_has_the_words_and_a_call_may_change_them(
    fake_drill: Any, inner: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("""
        import pytest
        @pytest.mark.drill(workload="ddp", nproc=3, fault="stop", rank=2, before="all_reduce:4")
        def test_it(drill):
            drill().assert_passed()
            drill(rank=0).assert_passed()
    """)
    inner("--strict-markers").assert_outcomes(passed=1)
    assert [call["scenario"].fault.targets for call in fake_drill.calls] == [(2,), (0,)]
    assert [call["scenario"].expect.dumps for call in fake_drill.calls] == [(0, 1), (1, 2)]


BODY = """
    def test_it(drill):
        {call}
"""
CALL = 'drill(workload="ddp", hold=0, at="step:2"{more}){then}'


@pytest.mark.parametrize(
    ("verdict", "more", "then", "outcome"),
    [
        (Verdict.PASS, "", ".assert_passed()", "passed"),
        (Verdict.FAIL, "", ".assert_passed()", "failed"),
        (Verdict.FAIL, "", "", "passed"),  # the test looks at the verdict itself
        (Verdict.UNKNOWN, "", ".assert_passed()", "errors"),
        (Verdict.UNKNOWN, "", "", "errors"),  # never a pass in silence
        (Verdict.UNKNOWN, ", allow_unknown=True", "", "passed"),
        (Verdict.UNKNOWN, ", allow_unknown=True", ".assert_passed()", "errors"),
    ],
)
def test_a_verdict_ends_the_test(
    fake_drill: Any, inner: Run, pytester: pytest.Pytester, verdict: Verdict, more: str, then: str, outcome: str
) -> None:
    pytester.makepyfile(BODY.format(call=CALL.format(more=more, then=then)))
    fake_drill.answers = {"ddp": verdict}
    inner().assert_outcomes(**{outcome: 1})


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ('drill(workload="ddp", holdd=1)', "*drill(): holdd: unknown word*"),
        ('drill("quick/ddp-hold", nproc=3)', "*a scenario and words*"),
        ("drill()", "*neither a workload nor a script*"),
        ('drill("quick/dpd-hold")', "*did you mean `quick/ddp-hold`*"),
    ],
)
def test_wrong_words_are_named(fake_drill: Any, inner: Run, pytester: pytest.Pytester, call: str, told: str) -> None:
    pytester.makepyfile(BODY.format(call=call))
    result = inner()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([told])


def test_the_fixture_is_listed_with_its_help(inner: Run, pytester: pytest.Pytester) -> None:
    inner("--fixtures").stdout.fnmatch_lines(["drill -- *", "*Run a drill*"])
