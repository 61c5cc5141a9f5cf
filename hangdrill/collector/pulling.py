"""Pulls from many ranks at once, a thread each, so that one hostile rank delays nobody else's evidence."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator

from hangdrill.collector.deadline import Deadline
from hangdrill.collector.ranks import WatchedRank
from hangdrill.collector.roads import PullOrder, PullReport, pull_rank
from hangdrill.collector.store import EvidenceStore
from hangdrill.model.run import PullReason, RankState

__all__ = ["PULL_DEADLINE_S", "order_for", "pull_each", "start_pull"]

PULL_DEADLINE_S = 25.0
"""More than all roads of one rank take together: a thread that is still at it then hangs in the kernel."""

Finished = tuple[WatchedRank, PullReport]


def order_for(rank: WatchedRank, reason: PullReason) -> PullOrder:
    """What the thread needs to know; a copy, so that it shares nothing with the watching."""
    return PullOrder(
        key=rank.key,
        reason=_reason_of(rank, reason),
        state=rank.state,
        brief=rank.orderly_exit or rank.pulled,
        socket=None if rank.state is RankState.EXITED else rank.socket,
        sources=rank.live_sources(),
        live=tuple(rank.traces),
        pid=rank.pid,
        started_ticks=rank.started_ticks,
        latest=() if rank.trace_is_outdated() else tuple(rank.traces.values()),
        before_the_end=rank.trace_before_the_end(),
        native=rank.native,
        entries=rank.dump_entries,
    )


def _reason_of(rank: WatchedRank, reason: PullReason) -> PullReason:
    """A rank's own end says more than the notice that another rank gave."""
    if rank.exit is not None:
        if rank.orderly_exit:
            return PullReason.EXIT
        return PullReason.SIGNAL if rank.exit.status == "signal" else PullReason.EXCEPTION
    return PullReason.GONE if rank.state is RankState.GONE else reason


def start_pull(rank: WatchedRank, order: PullOrder, store: EvidenceStore, finish: Callable[[Finished], None]) -> None:
    """Begin; the report goes to `finish`, in the pull's own thread.

    A daemon thread: nothing it does may keep the collector alive.
    """

    def work() -> None:
        report = PullReport(notes=("the pull failed inside hangdrill",))
        try:
            report = pull_rank(order, store)
        except Exception as error:  # a bug here must not cost the other ranks their evidence or their acks
            report = PullReport(notes=(f"the pull failed inside hangdrill: {type(error).__name__}: {error}",))
        finally:
            finish((rank, report))

    threading.Thread(target=work, name=f"pull {order.key.stem}", daemon=True).start()


def pull_each(
    ranks: Iterable[WatchedRank], reason: PullReason, store: EvidenceStore, *, deadline_s: float = PULL_DEADLINE_S
) -> Iterator[Finished]:
    """Pull from all of them in parallel; yields each as it is done, and at the deadline those given up."""
    finished: queue.SimpleQueue[Finished] = queue.SimpleQueue()
    waiting = {rank.key: rank for rank in ranks}
    for rank in waiting.values():
        start_pull(rank, order_for(rank, reason), store, finished.put)
    deadline = Deadline(deadline_s)
    while waiting and not deadline.over:
        try:
            rank, report = finished.get(timeout=deadline.left_s() or 0.001)
        except queue.Empty:
            break
        del waiting[rank.key]
        yield rank, report
    for rank in waiting.values():
        yield rank, PullReport(notes=(f"given up: the pull was not over within {deadline_s:g} s",))
