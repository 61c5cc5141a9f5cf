"""INT, TERM and HUP end the real command with 130 and one line, also when its reader reads no more."""

import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
PAGE = 4096


def run_script(text: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=DEADLINE_S, cwd=ROOT, check=False
    )


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe that holds one page and that nobody reads."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PAGE)
    yield reader, writer
    os.close(reader)


def held_bytes(reader: int) -> int:
    count = array("i", [0])
    fcntl.ioctl(reader, termios.FIONREAD, count)
    return count[0]


@pytest.mark.parametrize("number", ENDING, ids=str)
def test_a_command_that_waits_for_its_reader_ends(full_pipe: tuple[int, int], number: int) -> None:
    reader, writer = full_pipe
    process = subprocess.Popen(
        [sys.executable, "-m", "hangdrill", "schema", "result"], stdout=writer, stderr=subprocess.PIPE, cwd=ROOT
    )
    os.close(writer)
    ends_s = time.monotonic() + DEADLINE_S
    while held_bytes(reader) < PAGE:
        assert process.poll() is None
        assert time.monotonic() < ends_s, "the pipe was not filled"
        time.sleep(0.02)  # between two looks
    process.send_signal(number)
    _, told = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, told) == (130, b"hangdrill: interrupted\n")


ONCE = """
import signal
from hangdrill.cli import signals
signals.SAME_WISH_S = {seconds}
signals.end_by_interrupt()
try:
    signal.raise_signal(signal.SIGTERM)
except KeyboardInterrupt:
    signal.raise_signal(signal.SIGHUP)
    print("cleaned up")
"""


def test_a_second_signal_does_not_cut_the_cleaning_up_but_a_later_one_does() -> None:
    assert run_script(ONCE.format(seconds=1e9)).stdout == "cleaned up\n"
    later = run_script(ONCE.format(seconds=-1))
    assert later.stdout == ""
    assert "KeyboardInterrupt" in later.stderr


def test_under_nohup_a_hang_up_stays_ignored() -> None:
    script = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from hangdrill.cli import signals; "
    script += "signals.end_by_interrupt(); signal.raise_signal(signal.SIGHUP); print('goes on')"
    assert run_script(script).stdout == "goes on\n"
