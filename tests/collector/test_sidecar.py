"""The collector as a sidecar: it stays until it is told to go, says how it went, and begins only once."""

import signal
import subprocess
import sys

import pytest
from collector_tools import wait_until
from fake_plane import waiting_rank

COMMAND = [sys.executable, "-m", "hangdrill.collector.sidecar"]


@pytest.fixture
def start(job, tmp_path):
    started = []

    def run(*arguments):
        options = ["--sockets", str(job.sockets), "--to", str(job.evidence), "--poll-s", "0.02", *arguments]
        own = ["--exit-file", str(tmp_path / "exit"), "--log", str(tmp_path / "log")]
        started.append(subprocess.Popen([*COMMAND, *own, "--", *options]))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_stays_when_the_collector_is_done_and_ends_with_its_code(start, job, tmp_path):
    sidecar = start("--control", str(job.control))
    wait_until((job.evidence / "events.jsonl").exists, "it watches")
    (job.control / "teardown").touch()
    wait_until((tmp_path / "exit").exists, "the exit file")
    assert (tmp_path / "exit").read_text() == "0\n"
    assert sidecar.poll() is None
    sidecar.send_signal(signal.SIGTERM)
    assert sidecar.wait(30) == 0


def test_term_while_it_watches_finishes_the_evidence_and_ends(start, job, ranks, tmp_path):
    ranks.append(waiting_rank(job.sockets, 0))
    sidecar = start("--stall-after-s", "0.2")
    wait_until(lambda: list(job.evidence.glob("rank_0*")), "a file of rank 0")
    sidecar.send_signal(signal.SIGTERM)
    assert sidecar.wait(30) == 0
    assert (tmp_path / "exit").read_text() == "0\n"


def test_started_anew_beside_its_exit_file_it_only_waits(start, job, tmp_path):
    (tmp_path / "exit").write_text("0\n")
    sidecar = start()
    wait_until((tmp_path / "log").exists, "its log")
    sidecar.send_signal(signal.SIGTERM)
    assert sidecar.wait(30) == 0
    assert not job.evidence.exists() or not list(job.evidence.iterdir())


@pytest.mark.parametrize("wrong", [["--nonsense"], ["--poll-s", "0"]])
def test_wrong_options_are_told_in_the_exit_file(start, tmp_path, wrong):
    sidecar = start(*wrong)
    wait_until((tmp_path / "exit").exists, "the exit file")
    assert (tmp_path / "exit").read_text() == "64\n"
    assert "collector: " in (tmp_path / "log").read_text()
    sidecar.send_signal(signal.SIGTERM)
    assert sidecar.wait(30) == 64
