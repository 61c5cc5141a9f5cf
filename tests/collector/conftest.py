"""Fixtures of the collector's tests."""

import pytest
from collector_tools import Job

from hangdrill.collector import stacks


@pytest.fixture(autouse=True)
def no_pyspy(monkeypatch):
    """py-spy would look into pytest itself, where the fake ranks live; its own test puts it back."""
    monkeypatch.setattr(stacks, "find_pyspy", lambda: None)


@pytest.fixture
def job(tmp_path):
    """A job whose collector has ended by the end of the test."""
    job = Job(tmp_path)
    yield job
    job.stop.set()
    if job._thread is not None:
        job._thread.join(10)


@pytest.fixture
def sockets(tmp_path):
    """A directory for sockets alone."""
    directory = tmp_path / "only-sockets"
    directory.mkdir()
    return directory
