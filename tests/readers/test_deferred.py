"""A signal that comes in the middle of what must not be cut is kept, and does afterwards what it does."""

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from hangdrill.readers import deferred
from hangdrill.readers.deferred import ENDING, uninterrupted


@pytest.fixture
def seen() -> Iterator[list[str]]:
    """What happened. Its handlers write a signal's name; the process's own come back."""
    found: list[str] = []
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in ENDING:
        signal.signal(number, lambda number, _: found.append(signal.Signals(number).name))
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", sorted(ENDING))
def test_it_comes_afterwards_and_once(seen: list[str], number: signal.Signals) -> None:
    with uninterrupted():
        signal.raise_signal(number)
        signal.raise_signal(number)
        seen.append("whole")
    assert seen == ["whole", number.name]
    signal.raise_signal(number)
    assert seen == ["whole", number.name, number.name]


def test_who_insists_is_obeyed(seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "PATIENCE_S", -1.0)
    with uninterrupted():
        signal.raise_signal(signal.SIGTERM)
        seen.append("cut")
    assert seen == ["SIGTERM", "cut", "SIGTERM"]


def test_what_is_ignored_stays_ignored(seen: list[str]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with uninterrupted():
        signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGHUP)
    assert seen == []


def test_an_error_comes_out_and_the_signal_behind_it(seen: list[str]) -> None:
    def fail() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            raise OSError("no process")

    with pytest.raises(OSError, match="no process"):
        fail()
    assert seen == ["SIGINT"]


def test_another_thread_changes_no_handler(seen: list[str]) -> None:
    def work() -> None:
        with uninterrupted():
            seen.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=30)
    assert seen == ["done"]


@pytest.mark.parametrize("cut", range(1, 2 * len(ENDING) + 1))
def test_an_interrupt_among_the_handlers_leaves_none_of_ours_that_keeps(
    seen: list[str], monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """It comes just after one of the handlers was put or put back; afterwards every signal arrives, each time."""

    def interrupted(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)
    real, left = signal.signal, [cut]

    def put(number: int, handler: object) -> object:
        before = real(number, handler)
        left[0] -= 1
        if left[0] == 0:
            signal.raise_signal(signal.SIGINT)
        return before

    monkeypatch.setattr(signal, "signal", put)
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        pass
    assert left[0] <= 0
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
        signal.raise_signal(number)
    assert seen == ["SIGTERM", "SIGHUP", "SIGTERM"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
