"""Looks at all ranks again and again, a few at a time, and never waits for one that does not answer."""

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait

from hangdrill.collector.looks import look
from hangdrill.collector.ranks import WatchedRank
from hangdrill.model.run import RankState

__all__ = ["Poller"]

_THREADS = 32
_PATIENCE_S = 0.1


class Poller:
    """One look in flight for each rank at most. slowest_s: no rank goes unwatched for longer than that."""

    def __init__(self, *, poll_s: float, slowest_s: float) -> None:
        self._poll_s = poll_s
        self._slowest_s = max(poll_s, slowest_s)
        self._pool = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="look")

    def poll(self, ranks: Iterable[WatchedRank]) -> None:
        """Start the looks that are due, give them a moment, and take in those that are back."""
        ranks = tuple(ranks)
        due_s = time.monotonic() + self._poll_s / 4  # those that are nearly due come along, so that all share one round
        for rank in ranks:
            if rank.future is None and rank.next_look_s <= due_s and _worth_a_look(rank) and rank.socket is not None:
                sources, health = rank.next_look()
                rank.future = self._pool.submit(look, rank.socket, sources, health=health)
        futures = [rank.future for rank in ranks if rank.future is not None]
        if futures:
            wait(futures, timeout=_PATIENCE_S)
        for rank in ranks:
            if rank.future is not None and rank.future.done():
                rank.take_look(rank.future.result(), poll_s=self._poll_s, slowest_s=self._slowest_s)
                rank.future = None

    def close(self) -> None:
        """Every look ends by its own deadline."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _worth_a_look(rank: WatchedRank) -> bool:
    """A rank that announced its end is left alone: what it would say now is worth less than what it said before."""
    return rank.exit is None and rank.state in (RankState.NEVER_SEEN, RankState.RUNNING, RankState.STOPPED)
