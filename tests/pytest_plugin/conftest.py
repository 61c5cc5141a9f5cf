"""A pytest inside pytest that has the plugin, and a drill that answers without running anything."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hangdrill.model.diagnosis import Basis, Culprit, Diagnosis, HangVerdict, RankRoll
from hangdrill.model.run import CheckResult, DrillResult, Environment, Timings
from hangdrill.model.scenario import Scenario
from hangdrill.model.verdict import Verdict

SCENARIO = (
    'title = "t"\n[job]\nworkload = "ddp"\n[fault]\nkind = "hold"\nrank = 1\nat = "step:2"\n[expect]\nculprit = 1\n'
)


class FakeDrill:
    """In place of run_drill. `answers`: by part of the scenario's name, a verdict or an error; else PASS."""

    def __init__(self) -> None:
        self.answers: dict[str, Verdict | BaseException] = {}
        self.calls: list[dict[str, Any]] = []

    def __call__(self, name: str, scenario: Scenario, **options: Any) -> DrillResult:
        self.calls.append({"name": name, "scenario": scenario, **options})
        answer = next((answer for part, answer in self.answers.items() if part in name), Verdict.PASS)
        if isinstance(answer, BaseException):
            raise answer
        culprits = tuple(Culprit(rank=rank, basis=Basis.OBSERVED, why="") for rank in scenario.fault.targets)
        return DrillResult(
            scenario=name,
            verdict=answer,
            checks=(CheckResult(name="every-rank-dumped", verdict=answer, detail="1 of 2 arrived", mend="mend it"),),
            diagnosis=Diagnosis(verdict=HangVerdict.HANG, culprits=culprits, ranks=RankRoll(expected=2)),
            expected_culprits=scenario.expect.expected_culprits,
            timings=Timings(total_s=9.5, noticed_s=None),
            environment=Environment(),
            artifacts=(),
            sentence="rank 1 never came",
        )


@pytest.fixture
def fake_drill(monkeypatch: pytest.MonkeyPatch) -> FakeDrill:
    fake = FakeDrill()
    monkeypatch.setattr("hangdrill.drill.run.run_drill", fake)
    for name in ("HANGDRILL_OUT", "HANGDRILL_LAUNCHER", "HANGDRILL_PYTHON", "HANGDRILL_NO_SKIP"):
        monkeypatch.delenv(name, raising=False)
    return fake


ARGUMENTS = ("-p", "hangdrill.pytest_plugin", "-p", "no:cacheprovider", "-ra")


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Run pytest on the pytester's files, in this process, with no plugin but ours."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(*arguments: str, **options: Any) -> pytest.RunResult:
        return pytester.runpytest_inprocess(*ARGUMENTS, *arguments, **options)

    return run


@pytest.fixture
def scenario_file(pytester: pytest.Pytester) -> Callable[..., Path]:
    """Write a scenario file."""

    def write(name: str, text: str = SCENARIO) -> Path:
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def inner_process(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """The same in a process of its own, for what a pytest inside a pytest cannot show."""
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]).strip(os.pathsep))

    def run(*arguments: str) -> pytest.RunResult:
        return pytester.run(sys.executable, "-m", "pytest", *ARGUMENTS, *arguments, timeout=120)

    return run
