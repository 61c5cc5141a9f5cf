"""The user's own line is neither torch's, nor the agent's, nor the standard library's, wherever Python lies."""

from pathlib import Path

import pytest

from hangdrill.cli import run_command
from hangdrill.model.dump import Frame
from hangdrill.report.sentence import place_text
from hangdrill.report.story.places import place_of

RUNS = Path(__file__).parents[1] / "data" / "gpu_runs"
TORCH = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LIBRARIES = (
    "/usr/lib/python3.11/contextlib.py",
    "/opt/conda/envs/train/lib/python3.12/contextlib.py",
    "/root/.pyenv/versions/3.10.14/lib/python3.10/asyncio/runners.py",
    "/usr/lib64/python3.9/threading.py",
    "/opt/py/lib/python3.13t/contextlib.py",
    "/usr/lib/python311.zip/contextlib.py",
    "<frozen runpy>",
)
OWN = (
    "/home/me/train.py",
    "/v/lib/python3.11/site-packages/trainer/loop.py",
    "/usr/lib/python3/dist-packages/trainer/loop.py",
    "/home/me/python3.11/train.py",
    "/home/me/lib/pythonic/train.py",
)


def frames(*names):
    return tuple(Frame(filename=name, line=number, name="f") for number, name in enumerate(names, 1))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("own", OWN)
def test_the_next_frame_out_is_the_users(library, own):
    stack = frames(TORCH, library, own, library)
    name = own.rpartition("/")[2]
    assert (place_of(stack).text, place_of(stack).users) == (f"{name}:3 in f", True)
    assert place_text(stack) == f"{name}:3"


def test_a_script_below_a_directory_that_is_called_as_the_library_is_found_when_there_is_no_other():
    stack = frames(
        TORCH, LIBRARIES[0], "/home/me/lib/python3.11/train.py", "/usr/lib/python3.11/runpy.py", "<frozen runpy>"
    )
    assert (place_of(stack).text, place_of(stack).users) == ("train.py:3 in f", False)
    assert place_text(stack) == "train.py:3"


def test_torchs_innermost_is_said_when_only_threads_and_torch_are_left():
    stack = frames(TORCH, "/usr/lib/python3.11/threading.py")
    assert (place_of(stack).text, place_of(stack).users) == ("distributed_c10d.py:1 in f", False)
    assert place_text(stack) == "distributed_c10d.py:1"


def test_diagnose_names_the_line_of_the_script_in_a_real_run(capsys):
    assert run_command(["diagnose", str(RUNS / "nccl.collector.coalesced-hold-r1" / "evidence")]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "what rank 1 does after coalesced.py:19 in main" in text
    assert "contextlib" not in text
