"""The agent ends a process with the status and the output that Python would have given it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import atexit, sys, threading
atexit.register(print, "atexit")
threading.Thread(target=lambda: print("thread")).start()
def program():
    {end}
"""
WITH_AGENT = """
from hangdrill.rank.leaving import leave
try:
    program()
except BaseException as error:
    leave(error)
leave(None)
"""


def run(tmp_path, name, text):
    script = tmp_path / name
    script.write_text(text)
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, script], env=environ, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "end",
    ["pass", "raise ValueError('no')", "raise KeyboardInterrupt", "sys.exit('text')", "sys.exit(3)", "sys.exit(-1)",
     "sys.exit(300)", "sys.exit(True)", "sys.exit(None)", "sys.excepthook = None; raise ValueError('no')",
     "atexit.register(lambda: 1 / 0)", "print('unflushed', end='')"],
)  # fmt: skip
def test_the_status_and_the_output_are_those_of_python(tmp_path, end):
    alone = run(tmp_path, "alone.py", PROGRAM.format(end=end) + "program()\n")
    left = run(tmp_path, "left.py", PROGRAM.format(end=end) + WITH_AGENT)
    assert (left.returncode, left.stdout) == (alone.returncode, alone.stdout)
    assert left.stderr.strip().splitlines()[-1:] == alone.stderr.strip().splitlines()[-1:]


def test_objects_are_not_torn_down(tmp_path):
    """The negative control of the whole idea: with Python's own end this program would print and die differently."""
    text = "import os\nclass Late:\n    def __del__(self):\n        os._exit(9)\nkept = Late()\n"
    assert run(tmp_path, "alone.py", text).returncode == 9
    ended = run(tmp_path, "left.py", text + "from hangdrill.rank.leaving import leave\nleave(None)\n")
    assert ended.returncode == 0


def test_output_that_cannot_be_written_shows_in_the_status(tmp_path):
    text = "import os, sys\nprint('lost')\nos.close(1)\n"
    alone = run(tmp_path, "alone.py", text)
    left = run(tmp_path, "left.py", text + "from hangdrill.rank.leaving import leave\nleave(None)\n")
    assert left.returncode == alone.returncode == 120
