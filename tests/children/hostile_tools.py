"""Starting the hostile processes and waiting until they are as hostile as they get."""

import os
import subprocess
import sys
from pathlib import Path

from hangdrill.drill.procfs import CONTROLLER_VARIABLE, RUN_ID_VARIABLE, ProcessId, own_id, read_process
from hangdrill.drill.waiting import Waiter

SCRIPT = Path(__file__).with_name("hostile.py")
DEADLINE_S = 20.0


def start(mode: str, run_id: str, directory: Path, controller: ProcessId | None = None) -> "subprocess.Popen[bytes]":
    """Start one, marked as of this run, in a session of its own. Its pid is in directory/MODE once it is ready."""
    controller = controller or own_id()
    return subprocess.Popen(
        [sys.executable, "-S", "-E", str(SCRIPT), mode, str(directory / mode)],
        env={
            **os.environ,
            RUN_ID_VARIABLE: run_id,
            CONTROLLER_VARIABLE: f"{controller.pid}:{controller.started_ticks}",
        },
        start_new_session=True,
    )


def wait_ready(mode: str, directory: Path) -> int:
    """The pid of the one that stays, once it is there."""

    def probe() -> int | None:
        path = directory / mode
        return int(path.read_text()) if path.exists() else None

    pid = Waiter().until(probe, deadline_s=DEADLINE_S)
    assert pid is not None, f"{mode} was not ready within {DEADLINE_S:g} s"
    return pid


def wait_stopped(pid: int) -> None:
    def probe() -> bool | None:
        found = read_process(pid)
        return True if found is not None and found.stopped else None

    assert Waiter().until(probe, deadline_s=DEADLINE_S), f"{pid} did not stop within {DEADLINE_S:g} s"


def is_over(pid: int) -> bool:
    found = read_process(pid)
    return found is None or not found.alive
