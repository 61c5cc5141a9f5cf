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


IN_TEXT = """
import sys
from hangdrill import cli
cli.cli.commands["list"].callback = lambda **options: exec("raise KeyboardInterrupt")
sys.argv = ["hangdrill", "list"]
{end}
"""


@pytest.mark.parametrize(
    ("end", "code"), [("cli.main()", 130), ("sys.exit(cli.run_command())", -signal.SIGINT)], ids=["main", "control"]
)
def test_an_interrupt_in_code_that_is_text_ends_with_130_too(tmp_path: Path, end: str, code: int) -> None:
    """As namedtuple runs it while a module is imported: `python -m` would end itself by INT, though all is told."""
    (tmp_path / "as_module.py").write_text(IN_TEXT.format(end=end))
    words = [sys.executable, "-m", "as_module"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr) == (code, "hangdrill: interrupted\n")


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


SWALLOWED = """
import atexit, signal, sys, time
from hangdrill.cli import signals
atexit.register(time.sleep, {lasts})  # after what end_by_interrupt has registered
class Freed:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)
signals.end_by_interrupt()
{first}
try:
    Freed()
    time.sleep({waits})
    print("goes on")
except KeyboardInterrupt:
    print("cleaned up")
"""
RINGS_IN_THE_HOOK = """
real = signal.setitimer
def at_once(which, seconds):
    signal.setitimer = real
    signal.raise_signal(signal.SIGALRM)
signal.setitimer = at_once
"""


SECOND_IN_THE_HOOK = """
real = signal.setitimer
def with_another(which, seconds):
    signal.setitimer = real
    signal.raise_signal(signal.SIGINT)
    real(which, seconds)
    signal.raise_signal(signal.SIGHUP)
signal.setitimer = with_another
"""


@pytest.mark.parametrize("first", ["", RINGS_IN_THE_HOOK, SECOND_IN_THE_HOOK])
def test_an_interrupt_that_python_swallows_comes_again(first: str) -> None:
    done = run_script(SWALLOWED.format(first=first, waits=DEADLINE_S / 2, lasts=0))
    assert (done.stdout, done.stderr) == ("cleaned up\n", "")


def test_without_the_hook_it_is_lost() -> None:
    done = run_script(SWALLOWED.format(first="sys.unraisablehook = sys.__unraisablehook__", waits=0, lasts=0))
    assert done.stdout == "goes on\n"
    assert "KeyboardInterrupt" in done.stderr


def test_it_does_not_come_when_the_command_is_over() -> None:
    done = run_script(SWALLOWED.format(first="signals.AGAIN_S = 0.2", waits=0, lasts=0.4))
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")


@pytest.mark.parametrize(("first", "code"), [("", -signal.SIGALRM), ("signal.signal(signal.SIGALRM, print)", 0)])
def test_the_alarm_of_who_started_the_command_still_ends_it(first: str, code: int) -> None:
    """`perl -e 'alarm 60; exec ...'` is a time limit. The control: a program that takes the alarm itself."""
    script = "import signal; from hangdrill.cli import signals; signals.end_by_interrupt()\n"
    assert run_script(f"{script}{first}\nsignal.raise_signal(signal.SIGALRM)").returncode == code


@pytest.mark.parametrize("number", ENDING, ids=str)
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_signal_behind_the_end_does_not_change_the_exit_code(number: int, is_ours: bool) -> None:
    """Python puts the default back before it takes itself apart. The control: a program without our handlers."""
    late = f"import atexit, signal, sys; atexit.register(signal.raise_signal, {int(number)})"
    default = "for one in (1, 2, 15): signal.signal(one, signal.SIG_DFL)"
    ours = "from hangdrill.cli import signals; signals.end_by_interrupt()"
    done = run_script(f"{late}\n{ours if is_ours else default}\nsys.exit(2)")
    assert (done.returncode, done.stderr) == (2 if is_ours else -number, "")


def test_what_else_python_swallows_is_told_as_ever() -> None:
    freed = "class Freed:\n    def __del__(self):\n        raise OSError('lost')\nFreed()"
    assert (
        "OSError: lost" in run_script(f"from hangdrill.cli import signals\nsignals.end_by_interrupt()\n{freed}").stderr
    )


def test_under_nohup_a_hang_up_stays_ignored() -> None:
    script = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from hangdrill.cli import signals; "
    script += "signals.end_by_interrupt(); signal.raise_signal(signal.SIGHUP); print('goes on')"
    assert run_script(script).stdout == "goes on\n"
