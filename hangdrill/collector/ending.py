"""When the collector's work is over: it is told so, its parent is gone, or the job is."""

import time
from typing import Protocol

from hangdrill.collector.control import ControlDirectory
from hangdrill.collector.options import CollectorOptions
from hangdrill.collector.procfs import process_state, read_stat
from hangdrill.collector.roster import Roster, is_over
from hangdrill.model.run import RankState

__all__ = ["End", "StopSignal"]


class StopSignal(Protocol):
    """Says when to end; a threading.Event is one."""

    def is_set(self) -> bool:
        """Whether to end now."""
        ...


class End:
    """Asked before every step."""

    def __init__(self, options: CollectorOptions, control: ControlDirectory | None, stop: StopSignal) -> None:
        self._options = options
        self._control = control
        self._stop = stop
        self._over_since_s: float | None = None
        parent = None if options.parent_pid is None else read_stat(options.parent_pid)
        self._parent_ticks = None if parent is None else parent.started_ticks

    def reason(self, roster: Roster) -> str:
        """Why to end now, as the event log tells it; empty while there is no reason."""
        if self._stop.is_set():
            return "asked to stop"
        if self._control is not None and self._control.torn_down():
            return "the job is being torn down"
        if self._parent_is_gone():
            return "the parent is gone"
        return "the job is over" if self._job_is_over(roster) else ""

    def _parent_is_gone(self) -> bool:
        pid = self._options.parent_pid
        if pid is None:
            return False
        return self._parent_ticks is None or process_state(pid, self._parent_ticks) is RankState.GONE

    def _job_is_over(self, roster: Roster) -> bool:
        """All gone: at once when all ended well; else a restart may follow, for which a parent would wait itself."""
        ranks = roster.current
        if not is_over(ranks) or any(rank.pulling for rank in ranks):
            self._over_since_s = None
            return False
        if all(rank.orderly_exit for rank in ranks) and not roster.missing(self._options.world_size):
            return True
        now_s = time.monotonic()
        if self._over_since_s is None:
            self._over_since_s = now_s
        return self._options.parent_pid is None and now_s - self._over_since_s >= self._options.linger_s
