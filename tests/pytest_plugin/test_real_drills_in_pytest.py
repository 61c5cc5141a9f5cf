"""Real drills under pytest: one is judged; one that pytest ends early leaves nothing, or `clean` finds it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as Xml

import psutil
import pytest

from hangdrill.drill.clean import clean
from hangdrill.drill.waiting import Waiter

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(240)]

Run = Callable[..., pytest.RunResult]
JOB = 'title = "t"\n[job]\nworkload = "all-reduce"\nnproc_per_node = 2\ntimeout_s = {timeout_s}\n'
HOLD = '[fault]\nkind = "hold"\nrank = 1\nbefore = {{ op = "all_reduce", nth = 3 }}\n[expect]\nculprit = 1\n'


@pytest.fixture
def runtime_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A register of running drills of this test's own."""
    monkeypatch.setenv("HANGDRILL_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path / "runtime"


def processes_of(folder: Path) -> list[psutil.Process]:
    """Every process of a drill whose agent's orders lie below the folder, found by its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            orders = process.environ().get("HANGDRILL_AGENT", "")
        except psutil.Error:
            continue
        if orders.startswith(str(folder)) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def test_a_real_scenario_passes_and_its_record_stays(
    inner_process: Run, scenario_file: Callable[..., Path], pytester: pytest.Pytester, runtime_dir: Path
) -> None:
    scenario_file("scenarios/hold.toml", (JOB + HOLD).format(timeout_s=3))
    inner_process("--junitxml=x.xml", "--hangdrill-out=o").assert_outcomes(passed=1)
    properties = {item.get("name"): item.get("value") for item in Xml.parse(pytester.path / "x.xml").iter("property")}
    assert (properties["hangdrill.verdict"], properties["hangdrill.culprits"]) == ("pass", "1")
    assert (pytester.path / "o/hold/result.json").is_file()
    assert processes_of(pytester.path) == []


def test_a_timeout_by_signal_ends_the_drill_and_every_rank(
    inner_process: Run, scenario_file: Callable[..., Path], pytester: pytest.Pytester, runtime_dir: Path
) -> None:
    scenario_file("hold.toml", (JOB + HOLD).format(timeout_s=100))
    result = inner_process("-p", "pytest_timeout", "--timeout=15", "--timeout-method=signal")
    result.assert_outcomes(failed=1)
    assert processes_of(pytester.path) == []
    assert list(runtime_dir.glob("drill-*.json")) == []


def test_after_a_timeout_by_thread_clean_finds_what_is_left(
    inner_process: Run, scenario_file: Callable[..., Path], pytester: pytest.Pytester, runtime_dir: Path
) -> None:
    scenario_file("hold.toml", (JOB + HOLD).format(timeout_s=100))
    result = inner_process("-p", "pytest_timeout", "--timeout=15", "--timeout-method=thread")
    assert result.ret != pytest.ExitCode.OK
    assert processes_of(pytester.path) != []  # os._exit: nobody had the time to end them
    found = clean(dry_run=False, environ=os.environ)
    assert "process" in {leftover.what for leftover in found}
    assert processes_of(pytester.path) == []


def test_an_interrupt_ends_the_drill_and_every_rank(
    scenario_file: Callable[..., Path], pytester: pytest.Pytester, runtime_dir: Path
) -> None:
    scenario_file("hold.toml", (JOB + HOLD).format(timeout_s=100))
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "hangdrill.pytest_plugin", "-p", "no:cacheprovider"],
        cwd=pytester.path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    ranks = Waiter().until(lambda: processes_of(pytester.path) or None, deadline_s=60)
    assert ranks
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == pytest.ExitCode.INTERRUPTED
    assert processes_of(pytester.path) == []
