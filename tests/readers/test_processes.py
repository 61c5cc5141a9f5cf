"""Real processes: what they read, when they are started, and what becomes of files that kill them."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import _ExecutorManagerThread
from contextlib import nullcontext
from multiprocessing import forkserver
from pathlib import Path
from threading import enumerate as enumerate_threads

import pytest
from deadly_reads import DEADLY_RANKS, deadly, exits, greedy
from reader_tools import DUMPS, jobs, path_jobs, read_all, wait_until

import hangdrill
from hangdrill.model.diagnosis import UnreadableDump
from hangdrill.model.errors import MachineError, UsageError
from hangdrill.readers import engine, open_executor, opening, read_in_batches
from hangdrill.readers.engine import usable_cpus
from hangdrill.readers.lone import LoneReader
from hangdrill.readers.processes import Processes
from hangdrill.recorder import DumpJob, Outcome, read_job

INCIDENTS = sorted({path.parent for path in DUMPS.rglob("fr_*")})


@pytest.fixture
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small files are worth processes."""
    monkeypatch.setattr(opening, "FEW_JOBS", 2)
    monkeypatch.setattr(opening, "FEW_BYTES", 1)


@pytest.fixture
def pool() -> Iterator[Processes]:
    processes = Processes(2)
    yield processes
    processes.close()
    assert multiprocessing.active_children() == []


def lost(job: DumpJob, why: str) -> Outcome:
    return Outcome(unreadable=UnreadableDump(rank=job.rank, file=job.shown, error=why))


KILLED = "the process that read it died: SIGKILL, as when memory runs out"


def test_processes_read_what_this_process_reads(tmp_path: Path, worth_it: None) -> None:
    some = [*jobs(20), *path_jobs(tmp_path, 20)]
    with open_executor(processes=2) as each:
        outcomes = iter(each(read_job, some))
        first = next(outcomes)
        assert multiprocessing.active_children()
        assert [first, *outcomes] == read_all(some)
    assert multiprocessing.active_children() == []


def test_files_that_kill_their_reader_cost_no_other(worth_it: None) -> None:
    some = jobs(60)
    with open_executor(processes=2) as each:
        found = list(each(deadly, some))
    assert found == [lost(job, KILLED) if job.rank in DEADLY_RANKS else read_job(job) for job in some]


def test_so_it_is_with_an_executor_of_the_callers_own() -> None:
    some = jobs(60)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("forkserver")) as executor:
        list(executor.map(time.sleep, [0.1, 0.1]))  # a pool that breaks while it starts a process may lose it
        found = list(read_in_batches(executor)(deadly, some))
    assert found == [lost(job, KILLED) if job.rank in DEADLY_RANKS else read_job(job) for job in some]
    assert multiprocessing.active_children() == []


def test_processes_that_always_die_are_not_started_for_ever(worth_it: None, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    real = Processes._open
    monkeypatch.setattr(Processes, "_open", lambda self, *how: started.append(self.workers) or real(self, *how))
    some = jobs(24)
    with open_executor(processes=2) as each:
        found = list(each(exits, some))
    assert found == [lost(job, "the process that read it died: exit code 7") for job in some]
    assert started.count(2) <= 4


def to_fork_server(number: int, how: int) -> None:
    """Python reaps it, not we."""
    pid = forkserver._forkserver._forkserver_pid
    os.kill(pid, number)
    os.waitid(os.P_PID, pid, how | os.WNOWAIT)


@pytest.fixture(params=["fork server", "fork server in a call", "worker", "nobody"])
def dying(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What is killed between the start of the first worker and that of the second one. Nobody may look after the first
    one yet: that thread fails, with a traceback, when it counts processes while others are added (Python 3.10, 3.11).
    """
    connect, watched = forkserver.connect_to_new_process, []

    def second(fds):
        watched.append([one for one in enumerate_threads() if type(one) is _ExecutorManagerThread])
        if len(watched) != 2 or request.param == "nobody":
            return connect(fds)
        if request.param == "fork server in a call":
            to_fork_server(signal.SIGSTOP, os.WSTOPPED)
            found = connect(fds)
            to_fork_server(signal.SIGKILL, os.WEXITED)
            return found
        if request.param == "worker":
            multiprocessing.active_children()[0].kill()
        else:
            to_fork_server(signal.SIGKILL, os.WEXITED)
        return connect(fds)

    monkeypatch.setattr(forkserver, "connect_to_new_process", second)
    yield request.param
    assert watched[:3] == [[], [], []][: len(watched)]


def test_processes_that_die_while_they_are_started(dying: str, worth_it: None) -> None:
    """Other workers are started, or there is one clear error."""
    some = jobs(40)
    fails = (
        pytest.raises(MachineError, match="cannot be started") if dying == "fork server in a call" else nullcontext()
    )
    with open_executor(processes=3) as each, fails:
        assert list(each(read_job, some)) == read_all(some)
    wait_until(lambda: not multiprocessing.active_children(), "no process left")
    with open_executor(processes=3) as each:
        assert list(each(read_job, some)) == read_all(some)


def test_a_file_that_takes_all_memory_is_unreadable_and_no_bug() -> None:
    reader = LoneReader(deadline_s=60)
    (job,) = jobs(1)
    try:
        assert reader.read(greedy, job) == lost(job, "the process that read it ran out of memory")
        assert reader.read(read_job, job) == read_job(job)
    finally:
        reader.close()


def test_few_or_small_files_start_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "Processes", None)  # to start one would be an error
    some = path_jobs(tmp_path, opening.FEW_JOBS + 4)
    with open_executor(processes=2) as each:
        assert list(each(read_job, some)) == read_all(some)
    monkeypatch.setattr(opening, "FEW_BYTES", 1)
    with open_executor(processes=2) as each, pytest.raises(TypeError):
        list(each(read_job, some))


def test_one_job_at_a_time_starts_no_process(worth_it: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "Processes", None)
    some = jobs(40)
    with open_executor(processes=1) as each:
        assert list(each(read_job, some)) == read_all(some)


def test_an_error_of_the_consumer_ends_the_processes(worth_it: None) -> None:
    def stop_early() -> None:
        with open_executor(processes=2) as each:
            next(iter(each(read_job, jobs(500))))
            assert len(multiprocessing.active_children()) == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_early()
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda path: path.name)
def test_the_diagnosis_is_the_serial_one(incident: Path, pool: Processes) -> None:
    assert hangdrill.diagnose(incident, executor=pool.executor) == hangdrill.diagnose(incident)


def test_the_cpus_are_at_least_one_and_at_most_those_of_the_affinity() -> None:
    assert 1 <= usable_cpus() <= multiprocessing.cpu_count()


@pytest.mark.parametrize(
    ("told", "cpus"),
    [("max 100000", 8), ("150000 100000", 2), ("20000 100000", 1), ("9900000 100000", 8), ("", 8), ("1 0", 8)],
)
def test_the_quota_of_the_control_group_counts(
    told: str, cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(told)
    monkeypatch.setattr(engine, "_CPU_MAX", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "process_cpu_count", lambda: 8, raising=False)
    assert usable_cpus() == cpus


def test_a_spec_that_is_none_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="not an executor that is known: 'ray://x:1'"), open_executor("ray://x:1"):
        pass
