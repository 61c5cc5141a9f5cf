"""The ranks' interpreter is asked in a process of its own: the real torch here, and interpreters that fail."""

import sys
from pathlib import Path

import pytest

from hangdrill.preflight.surroundings import Torch
from hangdrill.preflight.torch_probe import ask_torch
from hangdrill.preflight.variables import BY_NAME, CHECKED_WITH, FAMILIES, VARIABLES, names_to_ask_for

INVENTED = "TORCH_NCCL_FLIGHT_RECORDER_ENABLED"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Torch:
    environ = {"PATH": "/usr/bin:/bin", "TORCH_FR_BUFFER_SIZE": ""}  # a bad value must not reach the probe
    names = (*BY_NAME, INVENTED)
    torch, problem = ask_torch(sys.executable, environ, tmp_path_factory.mktemp("cwd"), names=names)
    assert torch is not None, problem
    return torch


def test_the_real_torch_says_what_it_is(real: Torch) -> None:
    assert real.version.startswith("2.")
    assert real.has_debug_server
    assert real.gpus is not None
    assert (real.default_timeout_s, real.default_nccl_timeout_s) == (1800.0, 600.0)


def test_torch_holds_every_name_of_the_table_and_no_invented_one(real: Torch) -> None:
    if not real.version.startswith(CHECKED_WITH) or real.nccl is None:
        pytest.skip(f"the table was read out of torch {CHECKED_WITH} with NCCL, and this is {real.version}")
    assert {name for name, is_read in real.reads.items() if not is_read} == {INVENTED}


def test_the_names_of_the_table_are_unique_and_of_the_families() -> None:
    spellings = [name for each in VARIABLES for name in (each.name, *each.old)]
    assert len(spellings) == len(set(spellings))
    assert names_to_ask_for(["PATH", INVENTED, "NCCL_BLOCKING_WAIT"]) == ("NCCL_BLOCKING_WAIT", INVENTED)
    assert INVENTED.startswith(FAMILIES)


def interpreter(tmp_path: Path, body: str) -> str:
    file = tmp_path / "python"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1", "No module named 'torch'"),
        ("exit 3", "ended with 3"),
        ("echo hello", "not understood"),
        ("true", "not understood"),
        ('echo "{}"', "not understood"),
        ("kill -SEGV $$", "ended with"),
        ("exec sleep 60", "no answer within 0.5 s"),
    ],
)
def test_an_interpreter_that_fails_is_a_reason_and_no_crash(tmp_path: Path, body: str, part: str) -> None:
    torch, problem = ask_torch(interpreter(tmp_path, body), {"PATH": "/usr/bin:/bin"}, tmp_path, deadline_s=0.5)
    assert torch is None
    assert part in problem


def test_an_interpreter_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    assert "does not start" in ask_torch("/no/such/python", {}, tmp_path)[1]
