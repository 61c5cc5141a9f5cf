"""The engine of the tests: one for all of them."""

import pytest
from docker_lab import docker_lab, why_no_docker


@pytest.fixture(scope="session")
def docker_engine():
    """The variables that name it; skipped with the reason where there can be none."""
    if why := why_no_docker():
        pytest.skip(why)
    with docker_lab() as environ:
        yield environ
