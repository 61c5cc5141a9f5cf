"""A real extension, compiled against the headers and libraries of torch 2.13: it loads there, and not beside 2.15.

It calls c10::report_overflow, as whatever converts a number with c10::checked_convert does; torch 2.15 has it no more.
"""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from checkpoint_cases import stack_of

from hangdrill.certify.fingerprints import read_stack
from hangdrill.certify.stack_lines import stack_lines
from hangdrill.certify.stacks import Stack
from hangdrill.model.certify_plan import CertifyPlan, StackPlan
from hangdrill.model.receipt import Line
from hangdrill.model.verdict import Verdict

pytestmark = [
    pytest.mark.torchrun,
    pytest.mark.skipif(not version("torch").startswith("2.15."), reason="of torch 2.13 and 2.15"),
]

SOURCE = """
#include <c10/util/TypeCast.h>
extern "C" int narrow(long value) { return c10::checked_convert<signed char, long>(value, "int8"); }
"""
FIND_TORCH = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of packages with the extension in it, to be laid over an environment."""
    compiler, old = shutil.which("g++"), stack_of("2.13.0")
    if compiler is None:
        pytest.skip("no g++")
    told = subprocess.run([old, "-c", FIND_TORCH], capture_output=True, text=True, check=True, timeout=120)
    torch, home = Path(told.stdout.strip()), tmp_path_factory.mktemp("layer")
    (home / "narrowing").mkdir()
    (home / "narrow.cpp").write_text(SOURCE)
    words = [f"-I{torch / 'include'}", f"-L{torch / 'lib'}", "-Wl,--no-as-needed", "-lc10", "-std=c++20", "-fPIC"]
    library = home / "narrowing" / "_c.so"
    subprocess.run([compiler, "-shared", "-O1", home / "narrow.cpp", *words, "-o", library], check=True, timeout=600)
    info = home / "narrowing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: narrowing\nVersion: 1.0\nRequires-Dist: torch==2.13.0\n"
    )
    (info / "RECORD").write_text(f"narrowing/_c.so,,{library.stat().st_size}\n")
    return home


def layered(name: str, python: str, layer: Path) -> tuple[Stack, Line]:
    """The stack with the extension in it, and what the checklist says of its extensions."""
    stack = read_stack(name, python, env={"PYTHONPATH": str(layer)}, environ=os.environ)
    side = StackPlan(python=python)
    lines = stack_lines(CertifyPlan(title="t", baseline=side, candidate=side), stack, stack)
    return stack, next(line for line in lines if line.id == "stack/candidate/extensions")


def test_beside_the_torch_that_it_was_built_with_it_loads_and_the_line_passes(layer: Path) -> None:
    stack, line = layered("candidate", stack_of("2.13.0"), layer)
    assert stack.fingerprint is not None
    (found,) = (one for one in stack.fingerprint.extensions if one.name == "narrowing")
    assert (found.built_with, found.loads, found.stable_abi, found.error) == ("2.13.0", True, False, "")
    assert line.verdict is Verdict.PASS


def test_beside_another_torch_it_does_not_load_and_the_line_is_unknown_and_says_what_to_do(layer: Path) -> None:
    stack, line = layered("candidate", sys.executable, layer)
    assert stack.works
    assert stack.fingerprint is not None
    (found,) = (one for one in stack.fingerprint.extensions if one.name == "narrowing")
    assert found.loads is False
    assert "report_overflow" in found.error
    assert line.verdict is Verdict.UNKNOWN
    assert "narrowing 1.0 does not load" in line.detail
    assert line.mend.startswith("build or install them for torch 2.15.0")
