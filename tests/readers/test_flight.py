"""Order, laziness, bounds and endings of a reading, on executors that need no other process."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from types import FrameType

import pytest
from deadly_reads import buggy, empty
from reader_tools import Counted, jobs, read_all

from hangdrill.model.errors import MachineError
from hangdrill.readers import GivenExecutor, flight, landing, read_batches, read_here, read_in_batches
from hangdrill.recorder import DumpJob, Outcome, read_job


class Backwards(Executor):
    """Does nothing until a result is waited for, and then the newest first."""

    def __init__(self) -> None:
        self.pending: list[tuple[Lazy, Callable[..., object], tuple[object, ...]]] = []
        self.most = 0
        self.futures: list[Lazy] = []

    def submit(self, call, /, *args, **kwargs):
        future = Lazy(self)
        self.pending.append((future, call, args))
        self.futures.append(future)
        self.most = max(self.most, len(self.pending))
        return future

    def work(self) -> None:
        while self.pending:
            future, call, args = self.pending.pop()
            future.set_result(call(*args))


class Lazy(Future):
    def __init__(self, executor: Backwards) -> None:
        super().__init__()
        self.executor = executor

    def add_done_callback(self, call):
        super().add_done_callback(call)
        self.executor.work()


def rank_of(job: DumpJob) -> Outcome:
    return Outcome(unreadable=read_job(DumpJob(rank=job.rank, shown=job.shown, error="numbered")).unreadable)


def ranks(outcomes) -> list[int]:
    return [one.unreadable.rank for one in outcomes]


def test_outcomes_come_in_the_order_of_the_jobs_whatever_order_they_were_read_in() -> None:
    each = read_in_batches(Backwards(), workers=2)
    assert ranks(each(rank_of, jobs(500))) == list(range(500))


def test_threads_read_what_this_process_reads() -> None:
    some = jobs(40)
    with ThreadPoolExecutor(3) as executor:
        assert list(read_in_batches(executor)(read_job, some)) == read_all(some) == list(read_here()(read_job, some))


def test_jobs_are_taken_only_as_the_window_moves_on() -> None:
    counted = Counted(jobs(2000, size=10))
    outcomes = iter(read_in_batches(Backwards(), workers=1)(empty, counted))
    assert counted.taken == 0
    next(outcomes)
    window = (2 * 1 + 2 + 1) * 32  # the batches in the air, and the one that is being handed out
    assert counted.taken <= window
    for _ in range(31):
        next(outcomes)
    assert counted.taken <= window
    assert len(list(outcomes)) == 2000 - 32
    assert counted.taken == 2000


def test_only_so_many_batches_are_in_the_air() -> None:
    executor = Backwards()
    assert len(list(read_in_batches(executor, workers=3)(empty, jobs(3000, size=1)))) == 3000
    assert executor.most == 2 * 3 + 2


def test_only_so_many_bytes_are_in_the_air(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight, "MAX_FLIGHT_BYTES", 32 * 1000 * 3)
    executor = Backwards()
    assert len(list(read_in_batches(executor, workers=8)(empty, jobs(3000, size=1000)))) == 3000
    assert executor.most == 3


def test_a_small_incident_is_shared_out_among_all_workers() -> None:
    executor = Backwards()
    list(read_in_batches(executor, workers=4)(empty, jobs(64, size=1)))
    assert len(executor.futures) == 16


def test_progress_counts_every_job_and_knows_the_total() -> None:
    told: list[tuple[int, int]] = []
    each = read_in_batches(Backwards(), workers=2, progress=lambda done, total: told.append((done, total)))
    list(each(empty, Counted(jobs(70))))
    assert told == [(done, 70) for done in range(1, 71)]
    told.clear()
    list(read_here(lambda done, total: told.append((done, total)))(empty, (job for job in jobs(2))))
    assert told == [(1, 1), (2, 2)]


def test_closing_the_outcomes_cancels_what_is_pending() -> None:
    executor = Backwards()
    outcomes = iter(read_in_batches(executor, workers=2)(empty, jobs(3000)))
    next(outcomes)
    outcomes.close()
    waiting = [future for future in executor.futures if not future.done() or future.cancelled()]
    assert waiting
    assert all(future.cancelled() for future in waiting)


def test_a_consumers_error_cancels_what_is_pending() -> None:
    executor = Backwards()

    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(read_in_batches(executor, workers=2, progress=interrupted)(empty, jobs(3000)))
    assert [future for future in executor.futures if future.cancelled()]
    assert all(future.done() for future in executor.futures)


def test_a_bug_in_the_reader_is_not_taken_for_a_dead_process() -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(KeyError, match="a bug, at rank 0"):
        list(read_in_batches(executor)(buggy, jobs(3)))


def test_a_batch_that_never_comes_ends_in_an_error() -> None:
    class Never(Executor):
        def submit(self, call, /, *args, **kwargs):
            return Future()

    each = read_batches(GivenExecutor(Never(), 1), deadline_s=0.05)
    with pytest.raises(MachineError, match=r"was not read within 0\.05 s"):
        list(each(empty, jobs(3)))


@pytest.fixture
def alarm_raises() -> Iterator[None]:
    """As programs limit a call of theirs."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("of the program")

    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_what_a_handler_of_the_program_raises_is_not_taken_for_a_dead_process(alarm_raises: None) -> None:
    class Never(Executor):
        def submit(self, *call):
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            return Future()

    with pytest.raises(TimeoutError, match="of the program"):
        list(read_in_batches(Never())(empty, jobs(1)))


def test_batches_that_somebody_else_cancelled_end_in_an_error() -> None:
    class Cancels(Executor):
        def submit(self, call, /, *args, **kwargs):
            future = Future()
            future.cancel()
            return future

    with pytest.raises(MachineError, match="the executor was shut down"):
        list(read_in_batches(Cancels())(empty, jobs(3)))


def test_what_a_broken_executor_refuses_is_read_all_the_same() -> None:
    class Broken(Executor):
        def submit(self, call, /, *args, **kwargs):
            raise BrokenExecutor("it broke before")

    some = jobs(5)
    assert list(read_in_batches(Broken())(read_job, some)) == read_all(some)


def test_a_batch_that_its_broken_executor_forgot_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgets(GivenExecutor):
        def submit(self, read, batch):
            return Future()

        def check(self) -> None:
            raise BrokenExecutor("it broke while the batch was handed to it")

    monkeypatch.setattr(landing, "LOOK_S", 0.01)
    some = jobs(5)
    assert list(read_batches(Forgets(Backwards(), 1))(read_job, some)) == read_all(some)
