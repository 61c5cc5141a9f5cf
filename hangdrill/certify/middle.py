"""The median of a few numbers and its exact interval, by order statistics. Pure.

Nothing is assumed about the numbers but that they are independent: neither their shape nor their tails matter, for only
how many lie on each side of the true median is counted (the sign test turned around).
"""

from collections.abc import Sequence
from math import comb
from statistics import median

import msgspec

__all__ = ["Middle", "deviation_of", "middle_of", "pairs_for", "strays_allowed"]


class Middle(msgspec.Struct, frozen=True):
    """The median, and the interval that covers the true one at the confidence that was asked for, or better."""

    estimate: float
    low: float
    high: float


def middle_of(numbers: Sequence[float], confidence: float) -> Middle | None:
    """None when they are too few for this confidence."""
    strays = strays_allowed(len(numbers), confidence)
    if strays is None:
        return None
    ordered = sorted(numbers)
    return Middle(median(ordered), ordered[strays], ordered[-1 - strays])


def deviation_of(numbers: Sequence[float], estimate: float) -> float:
    """How far the numbers typically lie from the estimate: the median of the distances."""
    return median(0.0 if number == estimate else abs(number - estimate) for number in numbers)


def strays_allowed(count: int, confidence: float) -> int | None:
    """How many of the numbers on each side lie outside the interval; None when even 0 would be too many."""
    allowed, below, strays = (1 - confidence) / 2 * 2**count, 0, -1
    while (below := below + comb(count, strays + 1)) <= allowed:
        strays += 1
    return strays if strays >= 0 else None


def pairs_for(confidence: float) -> int:
    """The fewest numbers that have an interval: all of n lie on one side by chance once in 2 ** (n - 1)."""
    count = 1
    while strays_allowed(count, confidence) is None:
        count += 1
    return count
