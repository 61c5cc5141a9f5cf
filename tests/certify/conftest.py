"""The container engine of the tests is the launchers' tests'."""

import contextlib
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "launchers"))

from engine_labs import engine_lab, why_no_engine


@pytest.fixture(scope="session")
def docker_engine():
    """The variables that name a real Docker engine; skips with the reason where there can be none."""
    if why := why_no_engine("docker"):
        pytest.skip(why)
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(engine_lab("docker"))
