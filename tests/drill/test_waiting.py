"""A program that a drill runs in has its own handlers back afterwards, whenever it is interrupted."""

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from hangdrill.drill.waiting import Interrupt, handling_signals

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def handlers() -> Iterator[dict[int, object]]:
    """Those of pytest's own kind: INT raises, the others end the program."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    own = {signal.SIGINT: interrupted, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in own.items():
        signal.signal(number, handler)
    yield own
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("after", range(1, 2 * len(SIGNALS) + 1))
def test_an_interrupt_among_the_handlers_leaves_none_of_ours(
    handlers: dict[int, object], monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """One that stays would write into whatever file has the number of the closed pipe by then."""
    real, calls = signal.signal, []

    def put(number: int, handler: object) -> object:
        before = real(number, handler)
        calls.append(number)
        if len(calls) == after:
            signal.raise_signal(signal.SIGINT)
        return before

    monkeypatch.setattr(signal, "signal", put)
    seen = []
    with Interrupt() as interrupt:
        try:
            with handling_signals(interrupt):
                pass
        except KeyboardInterrupt:
            seen.append("raised")
        seen += ["asked for"] * interrupt.requested
    assert len(seen) == 1
    assert {number: signal.getsignal(number) for number in SIGNALS} == handlers
