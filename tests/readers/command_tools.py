"""The real command, in a session of its own, whose readers wait for ever at every file."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deadly_reads import HELD
from reader_tools import DEADLINE_S, environ, session_members, wait_until

from hangdrill.model.errors import ExitCode

EARLY = "HANGDRILL_TEST_EARLY"
DRIVER = """
import deadly_reads, os
from multiprocessing import forkserver
from hangdrill.readers import opening
from hangdrill.recorder import evidence
evidence.read_job = deadly_reads.held
opening.FEW_JOBS = opening.FEW_BYTES = 1
connect = forkserver.connect_to_new_process
def begin(fds):
    found = connect(fds)
    if 'HANGDRILL_TEST_EARLY' in os.environ:
        os.killpg(0, int(os.environ['HANGDRILL_TEST_EARLY']))  # a process is forked, and not told yet what to do
    return found
forkserver.connect_to_new_process = begin
from hangdrill.cli import main
main()
"""


class HeldCommand:
    """`hangdrill diagnose` with readers that wait at a gate."""

    def __init__(self, place: Path, *arguments: str, early: int = 0) -> None:
        self.gate = gate_in(place)
        self.errors = place / "stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, "diagnose", *arguments],
                env=environ(**{HELD: str(self.gate)}, **({EARLY: str(int(early))} if early else {})),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def wait_for_readers(self, count: int) -> None:
        wait_until(
            lambda: len(list(self.gate.glob("*.pid"))) >= count or self.process.poll() is not None, "readers at work"
        )
        assert self.process.poll() is None, self.errors.read_text()

    def signal_all(self, number: int) -> None:
        """As a terminal does at Ctrl-C and when it closes, and a scheduler when it cancels a job: all get it."""
        os.killpg(self.process.pid, number)

    def assert_interrupted(self) -> None:
        assert self.process.wait(timeout=DEADLINE_S) == ExitCode.INTERRUPTED, self.errors.read_text()
        self.assert_nothing_left()
        told = self.errors.read_text()
        assert told == "hangdrill: interrupted\n", told

    def assert_nothing_left(self) -> None:
        wait_until(lambda: not session_members(self.process.pid), "no process left in the session")


def gate_in(place: Path) -> Path:
    gate = place / "held"
    if not gate.exists():
        gate.mkdir()
        os.mkfifo(gate / "gate")
    return gate


@contextmanager
def held_command(place: Path, *arguments: str, early: int = 0) -> Iterator[HeldCommand]:
    """early: a signal that all processes of the command get while its readers are being started."""
    command = HeldCommand(place, *arguments, early=early)
    try:
        yield command
    finally:
        if command.process.poll() is None or session_members(command.process.pid):
            os.killpg(command.process.pid, signal.SIGKILL)
        command.process.wait(timeout=DEADLINE_S)
