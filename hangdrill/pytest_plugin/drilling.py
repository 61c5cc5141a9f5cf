"""Run one drill for a test, and turn its verdict into the test's end.

A drill that is interrupted has ended its processes before this sees it; pytest is then interrupted in turn.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hangdrill.drill.scenario_build import Words, build
from hangdrill.drill.scenario_file import NamedScenario, load, validate
from hangdrill.model.diagnosis import Diagnosis
from hangdrill.model.errors import HangdrillError, Interrupted, UsageError
from hangdrill.model.run import CheckResult, DrillResult
from hangdrill.model.scenario import Scenario
from hangdrill.model.verdict import Verdict
from hangdrill.pytest_plugin.settings import Settings

__all__ = [
    "DrillFailed",
    "DrillRunner",
    "DrillUnknown",
    "Drilled",
    "assert_passed",
    "run_and_tell",
    "scenario_of",
    "write_report",
]


class DrillFailed(AssertionError):
    """The verdict is FAIL; the text is the table of checks."""


class DrillUnknown(Exception):
    """The verdict is UNKNOWN, or there is none: the drill could not be run here."""


class Drilled(msgspec.Struct, frozen=True, kw_only=True):
    """A drill that was run: the contract's result, and where everything lies."""

    result: DrillResult
    run_dir: Path

    @property
    def verdict(self) -> Verdict:
        """PASS or FAIL; UNKNOWN only when it was allowed."""
        return self.result.verdict

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What the evidence says."""
        return self.result.diagnosis

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks that the diagnosis names."""
        return _culprits(self.result)

    def assert_passed(self) -> "Drilled":
        """End the test unless the verdict is PASS; the drill again, to go on with."""
        assert_passed(self.result, self.run_dir)
        return self


class DrillRunner:
    """What the fixture `drill` is: call it."""

    def __init__(self, item: pytest.Item, settings: Settings) -> None:
        self._item = item
        self._settings = settings
        self._count = 0

    def __call__(
        self,
        scenario: Scenario | NamedScenario | str | Path | None = None,
        *,
        allow_unknown: bool = False,
        **words: Any,  # noqa: ANN401  # each word has its own type, which `build` checks
    ) -> Drilled:
        """Run a drill and judge it.

        scenario: one, its shipped name or its file; else words: workload or script, args, nproc, hold or fault and
        rank(s), before, group, at, backend, steps, timeout_s, trigger, dumps, culprit(s), within_s, env, title.
        An UNKNOWN verdict ends the test as an error unless `allow_unknown`.
        """
        named = self._named(scenario, words)
        self._count += 1
        safe = re.sub(r"[^\w.-]+", "-", self._item.name).strip("-")
        run_dir = self._settings.out / "tests" / safe / f"{self._count}-{named.name.replace('/', '-')}"
        result = run_and_tell(self._item, named, self._settings, run_dir=run_dir)
        if result.verdict is Verdict.UNKNOWN and not allow_unknown:
            assert_passed(result, run_dir)
        return Drilled(result=result, run_dir=run_dir)

    def _named(self, scenario: Scenario | NamedScenario | str | Path | None, words: dict[str, Any]) -> NamedScenario:
        if scenario is None:
            mark = self._item.get_closest_marker("drill")
            return build(_words({**(mark.kwargs if mark else {}), **words}), source="drill()")
        if words:
            raise UsageError(
                "a scenario and words", where=f"drill(): {next(iter(words))}", next_step="give one of them"
            )
        if isinstance(scenario, NamedScenario):
            return scenario
        if isinstance(scenario, Scenario):
            name = re.sub(r"[^\w.-]+", "-", self._item.name).strip("-")
            return validate(msgspec.to_builtins(scenario), name=name, path=None, source="drill(scenario)")
        return load(scenario)


def run_and_tell(item: pytest.Item, named: NamedScenario, settings: Settings, *, run_dir: Path) -> DrillResult:
    """Run the drill, put what JUnit shows on the item, and call `pytest_hangdrill_result`."""
    from hangdrill.drill.run import run_drill
    from hangdrill.report.junit import properties_of
    from hangdrill.report.progress import NoopListener

    try:
        result = run_drill(
            named.name,
            scenario_of(named, settings.launcher),
            run_dir=run_dir,
            python=settings.python,
            environ=settings.environ,
            listener=NoopListener(),
        )
    except Interrupted as error:
        raise KeyboardInterrupt(str(error)) from error
    except HangdrillError as error:
        raise DrillUnknown(str(error)) from error
    properties = (("scenario", result.scenario), *properties_of(result), ("run_dir", str(run_dir)))
    item.user_properties.extend((f"hangdrill.{name}", value) for name, value in properties)
    item.ihook.pytest_hangdrill_result(item=item, result=result, run_dir=run_dir)
    return result


def assert_passed(result: DrillResult, run_dir: Path) -> None:
    """Raise DrillFailed or DrillUnknown unless the verdict is PASS."""
    if result.verdict is Verdict.PASS:
        return
    error = DrillFailed if result.verdict is Verdict.FAIL else DrillUnknown
    raise error(_table(result, run_dir))


def write_report(report: pytest.TestReport, error: BaseException) -> None:
    """The table in place of a traceback; an UNKNOWN as an error, which pytest knows by the phase `setup`."""
    report.longrepr = str(error)
    if isinstance(error, DrillUnknown):
        report.outcome = "failed"
        report.when = "setup"
        if hasattr(report, "wasxfail"):
            del report.wasxfail


def scenario_of(named: NamedScenario, launcher: str | None) -> Scenario:
    """The scenario under another launcher. UsageError when that one is unknown, or cannot run it."""
    if launcher is None:
        return named.scenario
    tables = msgspec.to_builtins(named.scenario)
    tables["job"]["launcher"] = launcher
    if launcher != "slurm":
        tables["job"]["sbatch"] = []
    return validate(tables, name=named.name, path=named.path, source="--hangdrill-launcher").scenario


def _words(given: dict[str, Any]) -> Words:
    """The words, with one rank for a list of ranks, and `rank` and `culprit` for their lists."""
    plain = {"rank": "ranks", "culprit": "culprits"}
    named = {plain.get(key, key): value for key, value in given.items()}
    for key in ("hold", "ranks", "culprits"):
        if isinstance(named.get(key), int):
            named[key] = (named[key],)
    if isinstance(named.get("group"), (list, tuple)):
        named["group"] = ",".join(str(rank) for rank in named["group"])
    unknown = sorted(named.keys() - set(Words.__struct_fields__))
    if unknown:
        from hangdrill.drill.scenario_shape import nearest

        raise UsageError(
            "unknown word", where=f"drill(): {unknown[0]}", next_step=nearest(unknown[0], Words.__struct_fields__)
        )
    return msgspec.convert(named, Words, strict=False)


def _culprits(result: DrillResult) -> tuple[int, ...]:
    return tuple(culprit.rank for culprit in result.diagnosis.culprits) if result.diagnosis else ()


def _table(result: DrillResult, run_dir: Path) -> str:
    width = max((len(check.name) for check in result.checks), default=0)
    lines = [f"{result.scenario}: {result.verdict.value.upper()}", *(_line(check, width) for check in result.checks)]
    return "\n".join([*lines, *([result.sentence] if result.sentence else []), f"run directory: {run_dir}"])


def _line(check: CheckResult, width: int) -> str:
    mend = f"\n{'':11}{'':{width}}  mend: {check.mend}" if check.mend and check.verdict is not Verdict.PASS else ""
    return f"  {check.verdict.value:7}  {check.name:{width}}  {check.detail}{mend}"
