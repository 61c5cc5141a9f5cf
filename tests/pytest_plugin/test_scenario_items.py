"""`pytest scenarios/`: each scenario is a test, FAIL fails, UNKNOWN is an error, and JUnit has the properties."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from hangdrill.model.errors import Interrupted, MachineError
from hangdrill.model.verdict import Verdict

Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]


def test_a_scenario_is_a_test_and_another_toml_file_is_not(fake_drill: Any, inner: Run, scenario_file: Write) -> None:
    scenario_file("scenarios/ours/one.toml")
    scenario_file("pyproject.toml", "[project]\nname = 'x'\n")
    result = inner("-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*scenarios/ours/one.toml::ours/one PASSED*"])


def test_fail_is_a_failure_with_the_table_of_checks(fake_drill: Any, inner: Run, scenario_file: Write) -> None:
    scenario_file("a.toml")
    fake_drill.answers = {"a": Verdict.FAIL}
    result = inner()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "a: FAIL",
            "  fail     every-rank-dumped  1 of 2 arrived",
            "*mend: mend it",
            "rank 1 never came",
            "run directory: */a",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*drilling.py*")


def test_unknown_is_an_error_and_no_failure_no_skip_no_pass(fake_drill: Any, inner: Run, scenario_file: Write) -> None:
    scenario_file("a.toml")
    fake_drill.answers = {"a": Verdict.UNKNOWN}
    result = inner("--junitxml=x.xml")
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    suite = Xml.parse("x.xml").getroot()[0]
    counts = {key: suite.get(key) for key in ("errors", "failures", "skipped")}
    assert counts == {"errors": "1", "failures": "0", "skipped": "0"}


def test_unknown_is_an_error_also_where_a_failure_is_expected(
    fake_drill: Any, inner: Run, scenario_file: Write, pytester: pytest.Pytester
) -> None:
    scenario_file("a.toml")
    scenario_file("b.toml")
    pytester.makeconftest("""
        import pytest
        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.xfail(reason="not yet"))
    """)
    fake_drill.answers = {"a": Verdict.UNKNOWN, "b": Verdict.FAIL}
    inner().assert_outcomes(errors=1, xfailed=1)


def test_unknown_is_not_run_together_with_the_name_of_its_check(
    fake_drill: Any, inner: Run, scenario_file: Write
) -> None:
    scenario_file("a.toml")
    fake_drill.answers = {"a": Verdict.UNKNOWN}
    inner().stdout.fnmatch_lines(["  unknown  every-rank-dumped  1 of 2 arrived"])


@pytest.mark.parametrize("by", ["", "option", "environment"])
def test_a_drill_without_its_gpus_is_skipped_with_the_reason_or_an_error_where_nothing_may_be_skipped(
    fake_drill: Any, inner: Run, scenario_file: Write, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    scenario_file("a.toml")
    monkeypatch.setattr("hangdrill.drill.gpus.missing_gpus", lambda scenario, environ: "needs 2 GPUs, has 0")
    if by == "environment":
        monkeypatch.setenv("HANGDRILL_NO_SKIP", "1")
    result = inner(*(["--hangdrill-no-skip"] if by == "option" else []))
    result.assert_outcomes(**({"errors": 1} if by else {"skipped": 1}))
    result.stdout.fnmatch_lines(["*needs 2 GPUs, has 0*"])
    assert fake_drill.calls == []


def test_what_the_machine_cannot_do_is_an_error_with_its_next_step(
    fake_drill: Any, inner: Run, scenario_file: Write
) -> None:
    scenario_file("a.toml")
    fake_drill.answers = {"a": MachineError("no torch", where="/their/python", next_step="install torch")}
    result = inner()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["/their/python: no torch", "  next: install torch"])


def test_a_wrong_scenario_is_a_collection_error_with_file_key_and_remedy(
    fake_drill: Any, inner: Run, scenario_file: Write
) -> None:
    scenario_file("a.toml", 'title = "t"\n[job]\nworkload = "dpp"\n')
    result = inner()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*a.toml:3: job.workload: unknown value*", "*did you mean `ddp`?"])
    assert fake_drill.calls == []


def test_an_interrupted_drill_interrupts_pytest(fake_drill: Any, inner: Run, scenario_file: Write) -> None:
    scenario_file("a.toml")
    scenario_file("b.toml")
    fake_drill.answers = {"a": Interrupted("interrupted by SIGINT")}
    assert inner(no_reraise_ctrlc=True).ret == pytest.ExitCode.INTERRUPTED
    assert [call["name"] for call in fake_drill.calls] == ["a"]


def test_junit_has_verdict_culprits_timings_and_run_directory(
    fake_drill: Any, inner: Run, scenario_file: Write, pytester: pytest.Pytester
) -> None:
    scenario_file("a.toml")
    inner("--junitxml=x.xml", "--hangdrill-out=o")
    case = Xml.parse("x.xml").getroot()[0][0]
    properties = {item.get("name"): item.get("value") for item in case.iter("property")}
    assert properties == {
        "hangdrill.scenario": "a",
        "hangdrill.verdict": "pass",
        "hangdrill.culprits": "1",
        "hangdrill.expected_culprits": "1",
        "hangdrill.sentence": "rank 1 never came",
        "hangdrill.total_s": "9.500",
        "hangdrill.run_dir": f"{pytester.path}/o/a",
    }


MATRIX = """
[matrix]
title = "{workload} {kind} {rank}"
workloads = ["ddp"]
kinds = ["hold", "none"]
[fault]
at = "step:2"
[expect]
culprits = "injected"
"""


@pytest.mark.parametrize(
    ("select", "names"),
    [
        ([], ["ddp-hold-r0", "ddp-hold-r1", "ddp-none"]),
        (["-k", "hold and r1"], ["ddp-hold-r1"]),
        (["-m", "drill(fault='none')"], ["ddp-none"]),
        (["-m", "not drill"], []),
    ],
)
def test_each_cell_of_a_matrix_is_a_test_that_can_be_selected(
    fake_drill: Any, inner: Run, scenario_file: Write, select: list[str], names: list[str]
) -> None:
    scenario_file("m.toml", MATRIX)
    inner(*select)
    assert [call["name"] for call in fake_drill.calls] == names


def test_options_win_over_the_environment(
    fake_drill: Any, inner: Run, scenario_file: Write, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester
) -> None:
    scenario_file("a.toml")
    monkeypatch.setenv("HANGDRILL_OUT", "/env/out")
    monkeypatch.setenv("HANGDRILL_PYTHON", "/env/python")
    inner()
    inner("--hangdrill-out=mine", "--hangdrill-python=/option/python")
    by_environment, by_option = fake_drill.calls
    assert (by_environment["run_dir"], by_environment["python"]) == (Path("/env/out/a"), "/env/python")
    assert (by_option["run_dir"], by_option["python"]) == (pytester.path / "mine/a", "/option/python")


def test_without_options_results_go_below_the_root_and_the_ranks_have_this_python(
    fake_drill: Any, inner: Run, scenario_file: Write, pytester: pytest.Pytester
) -> None:
    scenario_file("a.toml")
    inner()
    (call,) = fake_drill.calls
    assert call["run_dir"].parent.parent == pytester.path / "hangdrill-runs"
    assert "python" in Path(call["python"]).name


def test_an_unknown_launcher_is_an_error(fake_drill: Any, inner: Run, scenario_file: Write) -> None:
    scenario_file("a.toml")
    result = inner("--hangdrill-launcher=slurmm")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*slurmm*"])


def test_options_of_slurm_are_not_taken_along_to_another_launcher(
    fake_drill: Any, inner: Run, scenario_file: Write, pytester: pytest.Pytester
) -> None:
    path = scenario_file("a.toml")
    path.write_text(path.read_text().replace("[job]", '[job]\nlauncher = "slurm"\nsbatch = ["--partition=gpu"]'))
    inner("--hangdrill-launcher=torchrun").assert_outcomes(passed=1)


def test_the_result_hook_is_called_with_the_result_whatever_the_verdict(
    fake_drill: Any, inner: Run, scenario_file: Write, pytester: pytest.Pytester
) -> None:
    scenario_file("a.toml")
    scenario_file("b.toml")
    fake_drill.answers = {"b": Verdict.FAIL}
    pytester.makeconftest("""
        def pytest_hangdrill_result(item, result, run_dir):
            print("told", item.name, result.verdict.value, run_dir.name)
    """)
    inner("-s").stdout.fnmatch_lines(["*told a pass a*", "*told b fail b*"])
