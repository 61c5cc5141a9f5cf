"""A drill that is interrupted or killed in any phase leaves nothing: no process, socket, FIFO, lock or stopped rank.

Real drills, started as a user starts them. The machine is looked at, not the drill's own word.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hangdrill.drill.clean import clean
from hangdrill.drill.inspection import leftover_files
from hangdrill.drill.layout import RunLayout
from hangdrill.drill.lock import held_resources, stale_holders
from hangdrill.drill.procfs import own_id, scan
from hangdrill.drill.registry import registrations
from hangdrill.drill.supervise import Grace, Supervisor
from hangdrill.drill.waiting import Waiter
from hangdrill.model.errors import ExitCode
from hangdrill.model.run import JournalEvent

pytestmark = pytest.mark.torchrun

EVENTS = {
    "launch": "launched",
    "steady": "steady",
    "confirmed": "fault-confirmed",
    "noticed": "noticed",
    "collect": "collected",
    "teardown": "teardown",
}
REACH_S = 180.0
END_S = 60.0


class Drill:
    """A drill of two ranks, as a process of its own; rank 1 is held or stopped before its 3rd all_reduce."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.runtime = directory / "runtime"
        self.environ = {**os.environ, "HANGDRILL_RUNTIME_DIR": str(self.runtime)}
        words = ["--workload", "all-reduce", "--nproc", "2", "--fault", kind, "--rank", "1", "--before", "all_reduce:3"]
        self.out = directory / "out"
        self.output = directory / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hangdrill", "run", *words, "--out", str(self.out)],
                env=self.environ,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started = own_id()

    @property
    def layout(self) -> RunLayout:
        return RunLayout(next(self.out.rglob("plan.json")).parent)

    @property
    def run_id(self) -> str:
        return str(msgspec.json.decode(self.layout.plan.read_bytes())["run_id"])

    def events(self) -> list[str]:
        paths = list(self.out.rglob("journal.jsonl"))
        lines = paths[0].read_bytes().splitlines() if paths else []
        return [msgspec.json.decode(line, type=JournalEvent).name for line in lines]

    def wait_for(self, phase: str) -> None:
        def probe() -> bool | None:
            return True if EVENTS[phase] in self.events() or self.process.poll() is not None else None

        assert Waiter().until(probe, deadline_s=REACH_S, poll_s=0.01), f"{phase} was not reached within {REACH_S:g} s"
        assert EVENTS[phase] in self.events(), self.output.read_text()

    def processes(self) -> list[str]:
        """Everything that carries this run's id, zombies left out."""
        return [
            f"{item.name} {item.id.pid} {item.state}" for item in scan() if item.run_id == self.run_id and item.alive
        ]

    def assert_nothing_left(self) -> None:
        assert self.processes() == []
        assert leftover_files(self.layout) == ()
        assert registrations(self.runtime) == ()
        assert held_resources(self.runtime) == ()
        assert stale_holders(self.runtime) == ()


@pytest.fixture
def start_drill(tmp_path):
    """Starts drills of which nothing is left, whatever the test did."""
    drills: list[Drill] = []

    def start(kind: str) -> Drill:
        drills.append(Drill(tmp_path, kind))
        return drills[-1]

    yield start
    for drill in drills:
        drill.process.kill()
        drill.process.wait()
        if list(drill.out.rglob("plan.json")):
            Supervisor(drill.run_id, drill.started).kill(Grace())


@pytest.mark.parametrize("phase", EVENTS)
def test_ctrl_c_leaves_nothing(start_drill, phase):
    drill = start_drill("hold" if phase in ("launch", "confirmed", "collect") else "stop")
    drill.wait_for(phase)
    drill.process.send_signal(signal.SIGINT)
    code = drill.process.wait(timeout=END_S)
    drill.assert_nothing_left()
    assert drill.events()[-1] == "finished"
    # Evidence of a later phase may have come to its end before the signal did.
    assert code == ExitCode.INTERRUPTED or "interrupted" not in drill.events()
    assert code != ExitCode.INTERRUPTED or f"is in {drill.out}" in drill.output.read_text()


@pytest.mark.parametrize("phase", EVENTS)
def test_clean_ends_what_a_killed_controller_left(start_drill, phase):
    drill = start_drill("stop" if phase in ("launch", "confirmed", "collect") else "hold")
    drill.wait_for(phase)
    drill.process.kill()
    drill.process.wait()
    clean(dry_run=False, environ=drill.environ)
    drill.assert_nothing_left()
    assert clean(dry_run=False, environ=drill.environ) == ()


def test_clean_leaves_a_drill_alone_whose_controller_lives(start_drill):
    drill = start_drill("hold")
    drill.wait_for("steady")
    before = drill.processes()
    assert [item for item in clean(dry_run=False, environ=drill.environ) if drill.run_id in item.name] == []
    assert drill.process.poll() is None
    assert set(before) & set(drill.processes())
    assert drill.process.wait(timeout=REACH_S) in (ExitCode.PASS, ExitCode.FAIL, ExitCode.UNKNOWN)
    assert "interrupted" not in drill.events()
    drill.assert_nothing_left()


def test_ctrl_c_to_several_drills_ends_all_of_them(tmp_path):
    scenarios = tmp_path / "scenarios"
    scenarios.mkdir()
    for name in ("one", "two"):
        (scenarios / f"{name}.toml").write_text(
            'title = "held"\n[job]\nnproc_per_node = 2\nworkload = "all-reduce"\n'
            '[fault]\nkind = "hold"\nrank = 1\nbefore = { op = "all_reduce", nth = 3 }\n[expect]\nculprit = 1\n'
        )
    out, runtime = tmp_path / "out", tmp_path / "runtime"
    command = [sys.executable, "-m", "hangdrill", "run", str(scenarios), "-j", "2", "--out", str(out)]
    process = subprocess.Popen(
        command,
        env={**os.environ, "HANGDRILL_RUNTIME_DIR": str(runtime)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        both = lambda: True if len(registrations(runtime)) == 2 else process.poll()  # noqa: E731 - named for the reader
        assert Waiter().until(both, deadline_s=REACH_S) is True
        run_ids = {registration.run_id for registration in registrations(runtime)}
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=END_S) == ExitCode.INTERRUPTED
        assert [item for item in scan() if item.run_id in run_ids and item.alive] == []
        assert registrations(runtime) == ()
    finally:
        process.kill()
        process.wait()
        clean(dry_run=False, environ={"HANGDRILL_RUNTIME_DIR": str(runtime)})
