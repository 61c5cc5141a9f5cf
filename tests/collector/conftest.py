"""Fixtures of the collector's tests."""

import subprocess
import sys
from pathlib import Path

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


@pytest.fixture
def ranks():
    """Fake ranks of the test; all closed at its end."""
    made = []
    yield made
    for rank in made:
        rank.close()


@pytest.fixture
def process_rank(job):
    """Starts a fake rank as a process of its own."""
    started = []

    def start(rank, mode):
        program = Path(__file__).with_name("fake_plane.py")
        command = [sys.executable, str(program), str(job.sockets), str(rank), mode]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
