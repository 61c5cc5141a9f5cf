"""A scenario file as a pytest collector, and each of its scenarios as a test."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdrill.drill.gpus import missing_gpus, needs_gpus
from hangdrill.drill.plan import missing_launcher
from hangdrill.drill.scenario_file import NamedScenario, load_file
from hangdrill.model.errors import HangdrillError
from hangdrill.pytest_plugin.drilling import DrillUnknown, assert_passed, run_and_tell, scenario_of
from hangdrill.pytest_plugin.settings import settings_of

__all__ = ["ScenarioFile", "ScenarioItem"]


class ScenarioFile(pytest.File):
    """One TOML file: a scenario, or a matrix with a test for each cell."""

    def collect(self) -> Iterator[pytest.Item]:
        """The scenarios; a mistake in the file is a collection error with file, line and key."""
        for named in load_file(self.path):
            yield ScenarioItem.from_parent(self, name=named.name, named=named)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ANN401  # pytest's own types here are private
        """hangdrill's own errors say what, where and what next: no traceback."""
        return str(excinfo.value) if isinstance(excinfo.value, HangdrillError) else super().repr_failure(excinfo)


class ScenarioItem(pytest.Item):
    """One drill."""

    def __init__(self, *, named: NamedScenario, **kwargs: Any) -> None:  # noqa: ANN401  # passed on to pytest
        super().__init__(**kwargs)
        self.named = named
        job, fault = named.scenario.job, named.scenario.fault
        workload = job.workload.value if job.workload else Path(job.script or "").name
        # `-m "drill(fault='hold')"` selects by these, `-k` by the name.
        self.add_marker(pytest.mark.drill(workload=workload, fault=fault.kind.value, backend=job.backend))
        if needs_gpus(named.scenario):
            self.add_marker(pytest.mark.gpu)

    def setup(self) -> None:
        """Where the machine lacks what the drill needs: skip with the reason, or an error if nothing may be skipped."""
        settings = settings_of(self.config, os.environ)
        scenario = scenario_of(self.named, settings.launcher)
        if why := missing_gpus(scenario, settings.environ) or missing_launcher(scenario, settings.environ):
            if settings.may_skip:
                pytest.skip(why)
            raise DrillUnknown(why)

    def runtest(self) -> None:
        """Run the drill; the verdict ends the test."""
        settings = settings_of(self.config, os.environ)
        result = run_and_tell(self, self.named, settings, run_dir=settings.out / self.named.name)
        assert_passed(result, settings.out / self.named.name)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it stands, and what it is called."""
        return self.path, None, self.named.name
