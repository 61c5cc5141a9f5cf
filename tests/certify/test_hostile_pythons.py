"""Programs that are no Python of a stack, or a bad one: each ends in one sentence, and leaves nothing running."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_pythons import answering, fake_python

from hangdrill.certify import fingerprints
from hangdrill.certify.fingerprints import ask, read_stack
from hangdrill.cli import run_command
from hangdrill.drill.procfs import read_process
from hangdrill.drill.waiting import Waiter

ROOT = Path(__file__).parents[2]


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\ncat >/dev/null\n{text}\n")
    path.chmod(0o755)
    return str(path)


def read_pid(file: Path) -> int | None:
    return int(file.read_text()) if file.is_file() and file.read_text() else None


def is_over(pid: int) -> bool:
    found = read_process(pid)
    return found is None or not found.alive


@pytest.mark.parametrize("number", [40, 63])
def test_a_signal_without_a_name_is_told_by_its_number(tmp_path: Path, number: int) -> None:
    python = program(tmp_path / "python", f"kill -{number} $$")
    assert read_stack("x", python, env={}, environ=os.environ).missing.endswith(f"was ended by signal {number}")


@pytest.mark.parametrize("said", ["[1, 2]", "7", '"x"', "[" * 100_000, '{"python": '])
def test_an_answer_that_is_no_object_is_no_answer(tmp_path: Path, said: str) -> None:
    python = answering(tmp_path / "python", f"hangdrill.fingerprint {said}")
    assert read_stack("x", python, env={}, environ=os.environ).missing.endswith("it is no Python")


def test_a_program_that_never_stops_talking_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "MOST_BYTES", 1 << 20)
    python = program(tmp_path / "python", "exec yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
    assert "says more than 1 MB" in ask(python, os.environ).error


@pytest.mark.parametrize("way", ["sleep 600", "setsid sleep 600"])
def test_what_the_stack_leaves_behind_is_ended(tmp_path: Path, way: str) -> None:
    answer, left = fake_python(tmp_path / "honest"), tmp_path / "pid"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n{way} >/dev/null 2>&1 &\necho $! >"{left}"\nexec "{answer}"\n')
    python.chmod(0o755)
    assert read_stack("x", str(python), env={}, environ=os.environ).works
    assert is_over(int(left.read_text()))


def test_a_python_whose_asker_was_killed_ends_by_itself(tmp_path: Path) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    says = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(__import__('os').getpid()))"
    (torch / "__init__.py").write_text(f"{says}\n__import__('threading').Event().wait()\n")
    (torch / "version.py").write_text("__version__ = '2.15.0'\n")
    script = (
        "import os, sys; from hangdrill.certify.fingerprints import ask; ask(sys.executable, os.environ, deadline_s=9)"
    )
    asker = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"})
    started = Waiter().until(lambda: read_pid(tmp_path / "pid"), deadline_s=60)
    asker.kill()
    asker.wait()
    assert started is not None
    assert Waiter().until(lambda: is_over(started) or None, deadline_s=60)


@pytest.mark.parametrize("deadline", ["nan", "inf", "0"])
def test_a_deadline_that_is_none_is_refused(deadline: str) -> None:
    assert run_command(["stack", sys.executable, "--deadline-s", deadline]) == 64
