"""The engines of the tests: each is started once for all of them."""

import contextlib

import pytest
from engine_labs import ENGINES, engine_lab, why_no_engine


@pytest.fixture(scope="session")
def engines():
    """name -> the variables that name the engine; skips with the reason where there can be none."""
    with contextlib.ExitStack() as stack:
        started = {}

        def of(name):
            if why := why_no_engine(name):
                pytest.skip(why)
            if name not in started:
                started[name] = stack.enter_context(engine_lab(name))
            return started[name]

        yield of


@pytest.fixture(params=ENGINES)
def engine(request, engines):
    """The variables of one engine."""
    return engines(request.param)
