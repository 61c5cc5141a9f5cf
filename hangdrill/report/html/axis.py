"""The time axis: fine around the stall and coarse far from it, so that a second and a millisecond fit on one line."""

import math
from collections.abc import Iterable

import msgspec

from hangdrill.report.story.text import seconds_text

__all__ = ["Axis", "Tick", "axis_for"]

FINEST_S = 0.001
"""Within so many seconds of the stall the axis is linear."""
MARGIN = 0.04


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A labelled line; percent of the width."""

    at: float
    label: str


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """From `low` to `high`, on the bent scale."""

    low: float
    high: float
    ticks: tuple[Tick, ...] = ()

    def percent(self, seconds: float) -> float:
        """Where a time is, in percent of the width."""
        return round(100 * (_bend(seconds) - self.low) / (self.high - self.low), 2)


def axis_for(seconds: Iterable[float]) -> Axis:
    """The axis that holds all these times and the stall itself."""
    bent = [_bend(one) for one in (*seconds, 0.0)]
    low, high = min(bent), max(bent)
    margin = max((high - low) * MARGIN, 0.2)
    axis = Axis(low=low - margin, high=high + margin)
    decades = [sign * 10.0**power for sign in (-1, 1) for power in range(-3, 7)]
    marks = sorted([0.0, *(one for one in decades if axis.low <= _bend(one) <= axis.high)])
    ticks = [Tick(at=axis.percent(one), label=seconds_text(one) if one else "0") for one in marks]
    return Axis(low=axis.low, high=axis.high, ticks=tuple(ticks))


def _bend(seconds: float) -> float:
    return math.copysign(math.log10(1 + abs(seconds) / FINEST_S), seconds)
