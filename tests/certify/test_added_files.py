"""What was put beside the packages, or into torch, is another stack; a cache, and code elsewhere, is not."""

import os
import sys
from pathlib import Path

import pytest
from test_fingerprints import Environment

from hangdrill.certify.fingerprints import read_stack
from hangdrill.certify.stack_lines import stack_lines
from hangdrill.model.certify_plan import CertifyPlan, StackPlan
from hangdrill.model.fingerprint import Fingerprint, changes
from hangdrill.model.verdict import Verdict


@pytest.fixture
def made(tmp_path: Path) -> Environment:
    environment = Environment(tmp_path / "env")
    environment.torch()
    environment.install("numpy", "2.3.1", {"numpy/__init__.py": b""})
    environment.install("hook", "1.0", {"hook.pth": b"import os\n"})
    return environment


def changed_by(made: Environment, path: str, text: str = "x = 1\n") -> list[str]:
    """The facts of the identity in which the stack with that file differs from the one without."""
    before = made.fingerprint()
    (made.packages / path).parent.mkdir(parents=True, exist_ok=True)
    (made.packages / path).write_text(text)
    after = made.fingerprint()
    assert (before.digest != after.digest) is bool(changes(before, after))
    return [one.what for one in changes(before, after)]


@pytest.mark.parametrize(
    ("path", "fact"),
    [
        ("torch/distributed/tuned.py", "torch.changed-files"),
        ("torch/more/deep.py", "torch.changed-files"),
        ("sitecustomize.py", "package:added/sitecustomize.py"),
        ("usercustomize.py", "package:added/usercustomize.py"),
        ("tuned.pth", "package:added/tuned.pth"),
        ("numpy.py", "package:added/numpy.py"),
        ("mine/part.py", "package:added/mine"),
        ("_fast.cpython-312-x86_64-linux-gnu.so", "package:added/_fast.cpython-312-x86_64-linux-gnu.so"),
        ("hook.pth", "package:hook"),
    ],
)
def test_a_file_that_no_package_installed_is_another_stack(made: Environment, path: str, fact: str) -> None:
    assert changed_by(made, path, "import re\n") == [fact]


@pytest.mark.parametrize(
    "path",
    [
        "torch/__pycache__/version.cpython-312.pyc",
        "torch/distributed/__pycache__/odd.py",
        "__pycache__/six.cpython-312.pyc",
        "README.txt",
        "share/notes.txt",
        "some-data/part.py",
        "torch/lib/notes.txt",
    ],
)
def test_caches_and_what_is_never_imported_change_nothing(made: Environment, path: str) -> None:
    assert changed_by(made, path) == []


def test_an_added_file_that_changes_is_another_stack_again(made: Environment) -> None:
    for path in ("sitecustomize.py", "torch/distributed/tuned.py"):
        assert changed_by(made, path, "import re\n")
        assert changed_by(made, path, "import os\n")


def test_where_a_package_does_not_say_what_it_installed_directories_are_nobodys(made: Environment) -> None:
    (made.packages / "bare-1.0.dist-info").mkdir()
    (made.packages / "bare-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: bare\nVersion: 1.0\n")
    assert changed_by(made, "bare/__init__.py") == []
    assert changed_by(made, "sitecustomize.py") == ["package:added/sitecustomize.py"]


def test_code_elsewhere_on_the_path_is_not_of_the_stack(made: Environment, tmp_path: Path) -> None:
    def read() -> Fingerprint:
        text = f'#!/bin/sh\nPYTHONPATH="{made.packages}:{tmp_path / "mine"}" exec "{sys.executable}" -S "$@"\n'
        made.python.write_text(text)
        return made.fingerprint()

    (tmp_path / "mine").mkdir()
    before = read()
    (tmp_path / "mine/train.py").write_text("x = 1\n")
    assert read().digest == before.digest
    (tmp_path / "mine/sitecustomize.py").write_text("x = 1\n")  # but this one runs at every start
    assert read().digest != before.digest


def test_torch_with_an_added_file_is_not_what_its_wheel_installed(made: Environment) -> None:
    (made.packages / "torch/distributed/tuned.py").write_text("x = 1\n")
    stack = read_stack("candidate", str(made.python), env={}, environ=os.environ)
    plan = CertifyPlan(title="t", baseline=StackPlan(python="a"), candidate=StackPlan(python="b"))
    line = next(one for one in stack_lines(plan, stack, stack) if one.id == "stack/candidate/wheel")
    assert line.verdict is Verdict.FAIL
    assert "torch/distributed/tuned.py (added)" in line.detail
    assert "remove what was added" in line.mend
