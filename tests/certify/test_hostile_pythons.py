"""Programs that are no Python of a stack, or a bad one: each ends in one sentence, and leaves nothing running."""

import os
from pathlib import Path

import pytest
from fake_pythons import answering, fake_python

from hangdrill.certify import fingerprints
from hangdrill.certify.fingerprints import ask, read_stack
from hangdrill.drill.procfs import read_process


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\ncat >/dev/null\n{text}\n")
    path.chmod(0o755)
    return str(path)


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
