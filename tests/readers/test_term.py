"""A TERM that is not their parent's leaves the readers reading; a pool that breaks while it is left says nothing."""

import inspect
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future
from concurrent.futures.process import _ExecutorManagerThread
from pathlib import Path

import pytest
from deadly_reads import at_gate
from reader_tools import DEADLINE_S, environ, path_jobs, read_all, wait_until

from hangdrill.readers import GivenExecutor, read_batches
from hangdrill.readers.deferred import ENDING
from hangdrill.readers.processes import Processes
from hangdrill.recorder import DumpJob, Outcome

MENDED = "InvalidStateError" in inspect.getsource(_ExecutorManagerThread)
"""Whether this Python's pools stand a future that is cancelled while they break."""


@pytest.fixture
def some(tmp_path: Path) -> list[DumpJob]:
    os.mkfifo(tmp_path / "gate")
    return path_jobs(tmp_path, 8)


@pytest.fixture
def pool() -> Iterator[Processes]:
    processes = Processes(2)
    yield processes
    processes.close()
    wait_until(lambda: not multiprocessing.active_children(), "no process left")


def pids(place: Path) -> set[int]:
    return {int(path.stem) for path in place.glob("*.pid")}


def at_the_gate(
    pool: Processes, some: list[DumpJob], place: Path
) -> tuple[set[int], list[Future[tuple[Outcome, ...]]]]:
    """The two readers, which wait, and what they were given."""
    futures = [pool.submit(at_gate, (job,)) for job in some]
    wait_until(lambda: len(pids(place)) == 2, "both at the gate")
    return pids(place), futures


def signal_from_elsewhere(number: int, targets: set[int]) -> None:
    subprocess.run([sys.executable, "-c", f"import os\nfor pid in {targets}: os.kill(pid, {number})"], check=True)


@pytest.mark.parametrize("number", sorted(ENDING))
def test_the_readers_alone_are_not_ended(pool: Processes, some: list[DumpJob], tmp_path: Path, number: int) -> None:
    readers, futures = at_the_gate(pool, some, tmp_path)
    signal_from_elsewhere(number, readers)
    opened = os.open(tmp_path / "gate", os.O_RDWR)  # both ends: whoever comes goes through
    assert [one for future in futures for one in future.result(timeout=DEADLINE_S)] == read_all(some)
    assert pids(tmp_path) == readers
    os.close(opened)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_their_parent_ends_them(pool: Processes, some: list[DumpJob], tmp_path: Path, number: int) -> None:
    """Of one that the test, their parent, ends the pool breaks, and ends the other by TERM: nobody opens the gate."""
    readers, futures = at_the_gate(pool, some, tmp_path)
    processes = multiprocessing.active_children()
    os.kill(min(readers), number)
    for future in futures[1:]:
        with pytest.raises(BrokenExecutor):
            future.result(timeout=DEADLINE_S)
    for process in processes:
        process.join(timeout=DEADLINE_S)
    assert all(process.exitcode is not None for process in processes)


@pytest.fixture
def thread_errors(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would be printed on stderr."""
    found: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda what: found.append(what.exc_type.__name__))
    return found


@pytest.mark.parametrize("is_ours", [True, False], ids=["processes", "an executor that is given"])
def test_a_reading_that_is_left_while_its_pool_breaks(
    pool: Processes,
    some: list[DumpJob],
    tmp_path: Path,
    thread_errors: list[str],
    monkeypatch: pytest.MonkeyPatch,
    is_ours: bool,
) -> None:
    """It says nothing. The control cancels beside the executor's thread: a traceback, where Python was not mended."""
    breaks, left = threading.Event(), threading.Event()
    real = _ExecutorManagerThread.terminate_broken

    def terminate_broken(self, cause) -> None:
        breaks.set()
        assert left.wait(DEADLINE_S)
        real(self, cause)

    monkeypatch.setattr(_ExecutorManagerThread, "terminate_broken", terminate_broken)
    engine = pool if is_ours else GivenExecutor(pool.executor, pool.workers)
    outcomes = iter(read_batches(engine)(at_gate, some))
    assert [next(outcomes)] == read_all(some[:1])
    wait_until(lambda: len(pids(tmp_path)) == 2, "both at the gate")
    os.kill(min(pids(tmp_path)), signal.SIGKILL)
    assert breaks.wait(DEADLINE_S)
    outcomes.close()
    left.set()
    pool.close()
    assert thread_errors == ([] if is_ours or MENDED else ["InvalidStateError"])


OWN_POOL = """
import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from hangdrill.readers.processes import Processes
{handler}
Processes(1).close()
with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as own:
    print(*map(int, own.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()).result()))
"""


@pytest.mark.parametrize(
    ("handler", "blocked"), [("", ""), ("signal.signal(signal.SIGTERM, print)", "15")], ids=["none", "its own"]
)
def test_the_pools_of_a_program_without_handlers_can_be_ended(handler: str, blocked: str) -> None:
    """They are forked from the same server as the readers. The control: a program that takes TERM itself."""
    words = [sys.executable, "-c", OWN_POOL.format(handler=handler)]
    assert subprocess.run(words, env=environ(), capture_output=True, text=True, check=True).stdout.strip() == blocked
