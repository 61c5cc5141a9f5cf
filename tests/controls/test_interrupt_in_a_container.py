"""Ctrl-C while a drill runs in a container: exit code 130, and neither container nor process nor layer is left."""

import os
import shutil
import signal
from pathlib import Path

import psutil
import pytest
from controls_lab import start_hangdrill
from engine_labs import layers_of

from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.engine import Engine

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(1800)]

REACH_S, END_S = 240.0, 120.0
PLACES = [
    pytest.param("bwrap", marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")),
    "container",
]


def processes_of(directory: Path) -> set[str]:
    """By their arguments or their environment: in a container too they name the run directory."""
    found = set()
    for process in psutil.process_iter():
        try:
            words = (*process.cmdline(), *process.environ().values())
            is_own = any(str(directory) in word for word in words) and process.pid != os.getpid()
            if is_own and process.status() != psutil.STATUS_ZOMBIE:
                found.add(f"{process.pid} {process.name()}")
        except psutil.Error:
            continue
    return found


def mounts_of(directory: Path) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(directory) in line]


@pytest.mark.parametrize("launcher", PLACES)
def test_ctrl_c_ends_the_drill_and_its_container(launcher: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    engine = request.getfixturevalue("docker_engine") if launcher == "container" else {}
    before = layers_of(engine) if engine else set()
    journal = tmp_path / "out/containers/collector/journal.jsonl"
    words = ["run", "containers/collector", "--launcher", launcher, "--out", str(tmp_path / "out")]
    with start_hangdrill(words, tmp_path, engine, start_new_session=True) as process:
        reached = Waiter().until(
            lambda: (journal.exists() and "fault-confirmed" in journal.read_text()) or None, deadline_s=REACH_S
        )
        living = processes_of(tmp_path)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole foreground group
        output, _ = process.communicate(timeout=END_S)
    assert reached, output
    assert len(living) > 2, "the job ran when it was interrupted: else this test shows nothing"
    assert process.returncode == 130, output
    assert '"interrupted"' in journal.read_text()
    assert processes_of(tmp_path) == set()
    assert mounts_of(tmp_path) == []
    if engine:
        assert Engine(engine).runs() == []
        assert layers_of(engine) == before
