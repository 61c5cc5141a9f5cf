"""An interrupt that comes at the worst moment of waiting for a batch leaves nobody waiting for ever."""

import signal
import threading
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor

import pytest
from deadly_reads import empty
from reader_tools import jobs

from hangdrill.readers import GivenExecutor, landing
from hangdrill.readers.landing import Overdue, landed
from hangdrill.readers.lone import LoneReader


class Struck(threading.Condition):
    """The lock of a future, in which Ctrl-C comes just before it is let go for the n-th time."""

    def __init__(self, countdown: int) -> None:
        super().__init__()
        self.countdown = countdown

    def __exit__(self, *how):
        self.countdown -= 1
        if self.countdown == 0:
            signal.raise_signal(signal.SIGINT)
        return super().__exit__(*how)


def struck(countdown: int) -> Future:
    future = Future()
    future.set_result(())
    future._condition = Struck(countdown)
    return future


def is_free(future: Future) -> bool:
    """Whether another thread gets the lock, as the executor's must."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(future._condition.acquire, blocking=False).result()


@pytest.fixture
def engine():
    with ThreadPoolExecutor(1) as executor:
        yield GivenExecutor(executor, 1)


@pytest.mark.parametrize("countdown", [1, 2], ids=["the callback is added", "the result is taken"])
def test_the_interrupt_comes_out_and_the_future_is_not_left_locked(engine: GivenExecutor, countdown: int) -> None:
    future = struck(countdown)
    with pytest.raises(KeyboardInterrupt):
        landed(engine, future, 60)
    assert is_free(future)


def test_who_waits_in_the_future_itself_leaves_it_locked() -> None:
    future = struck(1)
    with pytest.raises(KeyboardInterrupt):
        future.result()
    assert not is_free(future)


def test_an_error_of_the_reading_comes_out_as_it_is(engine: GivenExecutor) -> None:
    future = Future()
    future.set_exception(TimeoutError("of the file system"))
    with pytest.raises(TimeoutError, match="of the file system"):
        landed(engine, future, 60)


def test_what_never_comes_is_overdue(engine: GivenExecutor) -> None:
    with pytest.raises(Overdue):
        landed(engine, Future(), 0.01)


class Forgets:
    """A pool of one process that broke just when the job was handed to it: nobody tells the future."""

    closed = False

    def submit(self, read, batch) -> Future:
        return Future()

    def check(self) -> None:
        raise BrokenExecutor

    def close(self) -> None:
        self.closed = True


def test_a_job_that_its_broken_pool_forgot_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "LOOK_S", 0.01)
    reader = LoneReader(deadline_s=3600)
    pool = reader._pool = Forgets()
    assert "the process that read it died" in reader.read(empty, *jobs(1)).unreadable.error
    assert pool.closed
