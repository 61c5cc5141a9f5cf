"""A point in time by which something must be over. Passed down, so that a chain of waits shares one limit."""

import time

__all__ = ["Deadline"]


class Deadline:
    """So many seconds from now, on the monotonic clock."""

    __slots__ = ("_end_s",)

    def __init__(self, seconds_s: float) -> None:
        self._end_s = time.monotonic() + seconds_s

    def left_s(self) -> float:
        """Seconds left; 0 when it is over, never negative."""
        return max(0.0, self._end_s - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the time has come."""
        return self.left_s() <= 0.0
