"""Ranks in a container: their pids are others; the collector finds them all the same, or says that they are gone."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from hangdrill.collector.control import RankKey
from hangdrill.collector.procfs import find_contained
from hangdrill.collector.ranks import WatchedRank
from hangdrill.model.run import AgentFacts, RankState

RUN = "hd-contained00"


@pytest.fixture
def contained_pid():
    """The pid, here, of a process that calls itself 2, and has the run's id."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap (bwrap) is not installed")
    words = ["bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "--die-with-parent", "--"]
    code = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
    environ = {**os.environ, "HANGDRILL_RUN_ID": RUN}
    with subprocess.Popen(
        [*words, sys.executable, "-S", "-c", code], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield int(process.stdout.readline())
        process.communicate()


def watched(pid, run=RUN):
    rank = WatchedRank(RankKey(0, 0), ())
    rank.contained_run = run
    rank.facts = AgentFacts(rank=0, pid=pid, started_ns=time.time_ns())
    return rank


def test_rank_is_found_by_the_pid_it_has_in_its_container(contained_pid):
    found = find_contained(contained_pid, RUN)
    assert found is not None
    assert found != contained_pid
    rank = watched(contained_pid)
    rank.take_process()
    assert (rank.pid, rank.state) == (found, RankState.RUNNING)


def test_process_of_another_run_is_not_taken(contained_pid):
    assert find_contained(contained_pid, "hd-another") is None


def test_rank_that_is_not_there_any_more_is_gone():
    rank = watched(os.getpid())  # lives, but in no container
    rank.take_process()
    assert (rank.pid, rank.state) == (None, RankState.GONE)


def test_rank_on_this_host_is_taken_at_its_word():
    rank = watched(os.getpid(), run="")
    rank.take_process()
    assert (rank.pid, rank.state) == (os.getpid(), RankState.RUNNING)
