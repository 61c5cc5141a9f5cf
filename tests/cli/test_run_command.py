"""`hangdrill run`: which drills it asks for, how verdicts become an exit code, what it writes. No real drill runs."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import drill_results
import pytest

from hangdrill.cli import run_command
from hangdrill.model.scenario import FaultKind, LauncherName, Scenario
from hangdrill.model.verdict import Verdict


class Runs:
    """In place of run_many: remembers what was asked for, answers with the verdicts in turn."""

    def __init__(self) -> None:
        self.verdicts = [Verdict.PASS]
        self.calls: list[dict[str, Any]] = []

    def __call__(self, items: list[tuple[str, Scenario]], **options: Any) -> list[Any]:
        self.calls.append({"items": items, **options})
        options["listener_for"](items[0][0]).note("a note")
        return [
            drill_results.drill_result(name, self.verdicts[index % len(self.verdicts)])
            for index, (name, _) in enumerate(items)
        ]

    @property
    def only(self) -> Scenario:
        ((_, scenario),) = self.calls[0]["items"]
        return scenario


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    fake = Runs()
    monkeypatch.setattr("hangdrill.drill.run.run_many", fake)
    monkeypatch.chdir(tmp_path)
    return fake


def test_without_a_scenario_it_is_the_quick_set(runs: Runs) -> None:
    assert run_command(["run", "-j", "2"]) == 0
    names = [name for name, _ in runs.calls[0]["items"]]
    assert "quick/ddp-hold" in names
    assert all(name.startswith("quick/") for name in names)
    assert runs.calls[0]["jobs"] == 2


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([Verdict.PASS], 0),
        ([Verdict.PASS, Verdict.UNKNOWN], 2),
        ([Verdict.PASS, Verdict.FAIL], 1),
        ([Verdict.UNKNOWN, Verdict.FAIL], 1),
    ],
)
def test_the_exit_code_is_the_merged_verdict(runs: Runs, verdicts: list[Verdict], code: int) -> None:
    runs.verdicts = verdicts
    assert run_command(["run", "quick/ddp-hold", "quick/ddp-stop"]) == code


def test_results_go_to_a_new_directory_unless_one_is_named(runs: Runs, tmp_path: Path) -> None:
    run_command(["run", "quick/ddp-hold"])
    run_command(["run", "quick/ddp-hold"])
    run_command(["run", "quick/ddp-hold", "--out", "there"])
    first, second, named = (call["out_dir"] for call in runs.calls)
    assert first.parent == second.parent == tmp_path / "hangdrill-runs"
    assert first != second
    assert named == tmp_path / "there"


def test_summary_and_junit_are_written(runs: Runs, tmp_path: Path) -> None:
    runs.verdicts = [Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN]
    run_command(["run", "quick/ddp-hold", "quick/ddp-stop", "quick/ddp-kill", "--out", "o", "--junit", "j/x.xml"])
    summary = json.loads((tmp_path / "o/summary.json").read_text())
    assert (summary["schema"], summary["verdict"]) == ("hangdrill.summary/1", "fail")
    assert (summary["passed"], summary["failed"], summary["unknown"], len(summary["results"])) == (1, 1, 1, 3)
    assert json.loads((tmp_path / "o/quick/ddp-stop/result.json").read_text())["verdict"] == "fail"
    assert (tmp_path / "o/junit.xml").read_bytes() == (tmp_path / "j/x.xml").read_bytes()


def test_junit_has_a_failure_for_fail_an_error_for_unknown_and_properties(runs: Runs, tmp_path: Path) -> None:
    runs.verdicts = [Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN]
    run_command(["run", "quick/ddp-hold", "quick/ddp-stop", "quick/ddp-kill", "--out", "o"])
    suite = Xml.parse(tmp_path / "o/junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    passed, failed, unknown = suite
    assert [child.tag for child in passed] == ["properties"]
    assert [failed[1].tag, unknown[1].tag] == ["failure", "error"]
    properties = {item.get("name"): item.get("value") for item in failed[0]}
    assert (properties["verdict"], properties["culprits"]) == ("fail", "1")
    assert properties["run_dir"] == f"{tmp_path}/o/quick/ddp-stop"
    assert (failed.get("classname"), failed.get("name")) == ("hangdrill.quick", "ddp-stop")


def test_json_on_stdout_is_the_summary_and_nothing_else(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(["run", "quick/ddp-hold", "--json"])
    assert json.loads(capsys.readouterr().out)["results"][0]["scenario"] == "quick/ddp-hold"


def test_a_script_is_drilled_from_the_command_line_with_its_own_arguments(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    words = "run --script train.py --nproc 4 --hold 1 --before all_reduce:40 --backend gloo --timeout-s 7 -- --lr 1 run"
    assert run_command(words.split()) == 0
    job, fault, expect = runs.only.job, runs.only.fault, runs.only.expect
    assert (job.script, job.args) == (str(tmp_path / "train.py"), ("--lr", "1", "run"))
    assert (job.world_size, job.backend, job.timeout_s) == (4, "gloo", 7)
    assert (fault.kind, fault.targets) == (FaultKind.HOLD, (1,))
    assert fault.before is not None
    assert (fault.before.op, fault.before.nth, fault.before.group) == ("all_reduce", 40, "default_pg")
    assert (expect.expected_culprits, expect.dumps) == ((1,), "all")
    assert runs.calls[0]["items"][0][0] == "train-hold-r1"


@pytest.mark.parametrize(
    ("words", "culprits", "dumps"),
    [
        ("--hold 0 --hold 2 --at step:3", (0, 2), "all"),
        ("--fault stop --rank 3 --at init", (3,), (0, 1, 2)),
        ("--fault kill --rank 0 --before any:9", (0,), (1, 2, 3)),
        ("--fault wrong-dtype --rank 1 --before all_reduce", (1,), (0, 2, 3)),
        ("--fault slow --rank 1 --before all_reduce:2 --group 0,1", (), "none"),
        ("", (), "none"),
    ],
)
def test_what_is_not_said_is_expected_by_the_injected_truth(
    runs: Runs, words: str, culprits: tuple[int, ...], dumps: str | tuple[int, ...]
) -> None:
    assert run_command(["run", "--workload", "ddp", "--nproc", "4", *words.split()]) == 0
    assert (runs.only.expect.expected_culprits, runs.only.expect.dumps) == (culprits, dumps)


def test_a_warning_is_told(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(["run", "delivery/native-gloo"])
    assert "warning: recorder.trigger: gloo writes no dump by itself" in capsys.readouterr().err


def test_the_python_of_the_ranks_is_an_option_or_from_the_environment(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANGDRILL_PYTHON", "/env/python")
    run_command(["run", "quick/ddp-hold"])
    run_command(["run", "quick/ddp-hold", "--python", "/option/python"])
    assert [call["python"] for call in runs.calls] == ["/env/python", "/option/python"]


def test_help_names_every_launcher(capsys):
    assert run_command(["run", "--help"]) == 0
    told = capsys.readouterr().out
    assert [launcher.value for launcher in LauncherName if launcher.value not in told] == []


@pytest.mark.parametrize("option", ["image", "launcher", "python"])
def test_an_option_that_is_given_without_a_word_is_not_left_out(
    runs: Runs, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--image "$IMAGE"`, and IMAGE is not set: the ranks would run on this host."""
    assert run_command(["run", "quick/ddp-hold", f"--{option}", ""]) == 64
    assert f"--{option} is empty" in capsys.readouterr().err
    assert runs.calls == []


def test_resume_refuses_a_result_that_cannot_be_read_and_keeps_it(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out" / "quick" / "ddp-hold" / "result.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    assert run_command(["run", "quick/ddp-hold", "--resume", "--out", str(tmp_path / "out")]) == 64
    assert f"{file}: this is no result of a drill" in capsys.readouterr().err
    assert (file.read_text(), runs.calls) == ("{", [])
