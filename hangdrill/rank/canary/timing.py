"""How long operations take, so that another run of the same stack says the same.

What disturbs a measurement makes it slower and never faster: another process, a clock that is not up yet, the first use
of a buffer. So many short batches are timed, of all operations in turn, that each meets the same disturbances, and of
each operation the lower decile counts: what it takes when nothing disturbs it. The median moves with the share of
disturbed batches; the minimum hangs on a single batch, and the more batches, the lower it gets.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hangdrill.rank.canary.device import synchronize

if TYPE_CHECKING:
    from hangdrill.rank.canary.turns import Turns

__all__ = ["Timed", "lower_decile", "timed_operations", "warm_clocks"]

WARM_ROUNDS = 3
CLOCKS_UP_S = 0.4
WIDTH = 2048


class Timed(NamedTuple):
    """An operation, and how many of it make one batch: one after another, and waited for at the end."""

    action: Callable[[], Any]
    batch: int


def timed_operations(
    operations: Mapping[str, Timed], device: Any, *, rounds: int, turns: "Turns", part: str
) -> dict[str, float]:
    """Seconds of one operation each: the lower decile of its batches, one a round. All ranks make as many."""
    taken_s: dict[str, list[float]] = {name: [] for name in operations}

    def make_rounds(count: int, *, keep: bool) -> None:
        for _ in range(count):
            for name, (action, batch) in operations.items():
                synchronize(device)
                began_s = time.perf_counter()
                for _ in range(batch):
                    action()
                synchronize(device)
                if keep:
                    taken_s[name].append((time.perf_counter() - began_s) / batch)

    make_rounds(WARM_ROUNDS, keep=False)
    if turns.together:
        turns.open(part)
        for number in range(rounds):
            with turns.block(part, number):
                make_rounds(1, keep=False)  # the other job was here
                make_rounds(1, keep=True)
        turns.close(part)
    else:
        make_rounds(rounds, keep=True)
    return {name: lower_decile(numbers) for name, numbers in taken_s.items()}


def lower_decile(numbers: list[float]) -> float:
    """One in ten is no larger. ValueError of none."""
    if not numbers:
        raise ValueError("there is no decile of nothing")
    return sorted(numbers)[(len(numbers) - 1) // 10]


def warm_clocks(device: Any) -> None:
    """Keep a GPU busy until its clocks are up, with work of its own: no rank waits for another here."""
    if device.type == "cpu":
        return
    one = torch.ones(WIDTH, WIDTH, device=device)
    until_s = time.perf_counter() + CLOCKS_UP_S
    while time.perf_counter() < until_s:
        torch.mm(one, one)
        synchronize(device)
