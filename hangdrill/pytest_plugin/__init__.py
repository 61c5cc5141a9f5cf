"""pytest runs drills: `pytest scenarios/` collects the TOML files, and the fixture `drill` serves drills in Python.

PASS passes, FAIL fails with the table of checks, UNKNOWN is an error: never a skip, never a pass, also under xfail.
pytest loads this in every session, so it imports nothing of hangdrill's but small modules; the rest comes when a
scenario is collected or the fixture is used. `os.environ` is read here.
"""

import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hangdrill.pytest_plugin.settings import OUT_KEY, WORKER_KEY, add_options, choose_out, settings_of

if TYPE_CHECKING:
    from hangdrill.pytest_plugin.drilling import DrillRunner

HEADER = re.compile(r"^\s*\[(job|matrix)\]", re.MULTILINE)
MAX_HEADER_BYTES = 1_000_000


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Offer `pytest_hangdrill_result`."""
    from hangdrill.pytest_plugin import hooks

    pluginmanager.add_hookspecs(hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and choose where results go."""
    config.addinivalue_line("markers", "drill(**words): a hang drill; the words are those of the fixture `drill`")
    config.addinivalue_line("markers", "gpu: a drill that needs GPUs; skipped, with the reason, where there are none")
    choose_out(config, os.environ)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401  # xdist may be absent
    """Tell an xdist worker where results go."""
    node.workerinput[WORKER_KEY] = str(node.config.stash[OUT_KEY])


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a TOML file that looks like a scenario."""
    if file_path.suffix != ".toml" or not _has_header(file_path):
        return None
    from hangdrill.pytest_plugin.items import ScenarioFile

    return ScenarioFile.from_parent(parent, path=file_path)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write a drill's end as its table, and an UNKNOWN as an error whatever other plugins made of it."""
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    if error is not None and type(error).__module__ == "hangdrill.pytest_plugin.drilling":
        from hangdrill.pytest_plugin.drilling import write_report

        write_report(report, error)
    return report


@pytest.fixture
def drill(request: pytest.FixtureRequest) -> "DrillRunner":
    """Run a drill: `drill(workload="ddp", nproc=2, hold=1, before="all_reduce:4").assert_passed()`.

    Takes a scenario, its name or its file instead of words; without either, the words of `@pytest.mark.drill(...)`.
    """
    from hangdrill.pytest_plugin.drilling import DrillRunner

    return DrillRunner(request.node, settings_of(request.config, os.environ))


def _has_header(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return HEADER.search(file.read(MAX_HEADER_BYTES).decode("utf-8", errors="replace")) is not None
    except OSError:
        return False
