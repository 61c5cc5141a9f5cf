"""Every check passes, fails and says "unknown" on a record made for it; neither a crash nor silence is a pass."""

from collections.abc import Iterator

import pytest
from check_cases import CASES
from healthy_runs import held_run, mutate, none_run, restarted_run, scenario

from hangdrill.checks import ALL, Check, run_check, run_checks
from hangdrill.model.run import CheckResult, RecordedRun
from hangdrill.model.scenario import Incident, Scenario, Teardown
from hangdrill.model.verdict import Verdict

CHECKS = {check.name: check for check in ALL}
GROUPS = (("passing", Verdict.PASS), ("failing", Verdict.FAIL), ("unknown", Verdict.UNKNOWN))


def each_case() -> Iterator[object]:
    for name, cases in CASES.items():
        for group, verdict in GROUPS:
            for title, make in getattr(cases, group).items():
                yield pytest.param(name, make, verdict, id=f"{name}-{group}-{title}".replace(" ", "-"))


def result_of(name: str, run: RecordedRun) -> CheckResult:
    result = run_check(CHECKS[name], run)
    assert result is not None, "the check does not apply to this record"
    return result


@pytest.mark.parametrize(("name", "make", "verdict"), list(each_case()))
def test_check_comes_to_the_verdict_of_its_case(name, make, verdict):
    result = result_of(name, make())
    assert (result.verdict, result.name) == (verdict, name)
    assert result.detail
    assert "the check itself failed" not in result.detail


def test_every_check_has_all_three_kinds_of_cases():
    assert set(CASES) == set(CHECKS)
    lacking = [name for name, cases in CASES.items() if not (cases.passing and cases.failing and cases.unknown)]
    assert lacking == []


def test_names_are_unique_and_claims_are_one_sentence():
    assert len(CHECKS) == len(ALL)
    for check in ALL:
        assert check.claim.endswith(".")
        assert "\n" not in check.claim


def test_healthy_record_passes_every_check_that_applies():
    results = run_checks(held_run())
    assert {result.name: result.detail for result in results if result.verdict is not Verdict.PASS} == {}
    order = [check.name for check in ALL]
    names = [result.name for result in results]
    assert names == sorted(names, key=order.index)


def asking_for_everything() -> Scenario:
    wanted = scenario(
        job={"max_restarts": 1},
        expect={"survives": tuple(Teardown)},
        recorder={"deliver_to": "s3://dumps", "keep_days": 30},
    )
    return mutate(wanted, incident=Incident(command=("notify.sh",)))


def test_every_check_applies_to_some_record():
    everything = restarted_run(scenario=asking_for_everything())
    assert {result.name for result in run_checks(everything)} == set(CHECKS)


def test_negative_control_leaves_out_what_does_not_apply():
    names = [result.name for result in run_checks(none_run())]
    assert names == ["fault-confirmed", "agents-agree", "every-rank-dumped", "culprit", "job-ended", "nothing-left"]
    assert {result.verdict for result in run_checks(none_run())} == {Verdict.PASS}


def test_restart_and_other_teardowns_are_left_out_unless_asked_for():
    names = {result.name for result in run_checks(held_run())}
    assert "restart-kept" not in names
    assert {name for name in names if name.startswith("survives-")} == {"survives-job-exit"}


def test_restart_is_judged_when_only_the_expectation_asks_for_it():
    run = held_run(scenario=scenario(expect={"survives": (Teardown.RESTART,)}))
    assert result_of("restart-kept", run).verdict is Verdict.UNKNOWN


def test_culprit_is_left_out_when_the_scenario_expects_nothing():
    run = held_run(scenario=scenario(expect={"culprit": None, "kind": None}))
    assert "culprit" not in {result.name for result in run_checks(run)}


def test_crashed_check_is_unknown_with_the_exceptions_text():
    def crash(run: RecordedRun) -> None:
        raise KeyError("state")

    result = run_check(Check(name="crashes", claim="It crashes.", judge=crash), held_run())
    assert result == CheckResult(
        name="crashes",
        verdict=Verdict.UNKNOWN,
        detail="the check itself failed: KeyError: 'state'",
        mend="this is a bug in hangdrill: report it with the run directory",
    )


def test_order_of_files_and_artifacts_changes_no_answer():
    run = held_run()
    reversed_run = mutate(run, files=run.files[::-1], artifacts=run.artifacts[::-1])
    assert run_checks(reversed_run) == run_checks(run)


@pytest.mark.parametrize("name", list(CHECKS))
def test_record_without_any_evidence_passes_nothing(name):
    run = restarted_run(
        scenario=asking_for_everything(),
        artifacts=(),
        files=(),
        dumps={},
        agents={},
        earlier_agents=(),
        faults=(),
        manifest=None,
        diagnosis=None,
        journal=(),
        leftovers=None,
    )
    assert result_of(name, run).verdict is Verdict.UNKNOWN
