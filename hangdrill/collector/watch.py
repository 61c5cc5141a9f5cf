"""The collector's loop: discover, look, notice, pull, let go. It owns the order; the other files own the parts.

A hang is an episode: from its notice, over the pull from every rank, until the job goes on after all (or ends).
Within an episode nothing is pulled twice, for what a rank says after it gave up is worth less than what it said before.
"""

import queue
import time

from hangdrill.collector.control import ControlDirectory
from hangdrill.collector.deadline import Deadline
from hangdrill.collector.ending import End, StopSignal
from hangdrill.collector.events import EventName
from hangdrill.collector.journalist import Journalist
from hangdrill.collector.notice import Notice, NoticeRules, find_notice, settled
from hangdrill.collector.options import CollectorOptions
from hangdrill.collector.polling import Poller
from hangdrill.collector.pulling import Finished, order_for, pull_each, start_pull
from hangdrill.collector.ranks import WatchedRank
from hangdrill.collector.roster import Roster
from hangdrill.collector.sources import sources_of
from hangdrill.collector.store import EvidenceStore
from hangdrill.collector.wakeup import DirectoryWatch
from hangdrill.delivery import NoopOutbox, Outbox
from hangdrill.model.run import ArtifactKind, PullReason, RankState

__all__ = ["Watch"]

_SETTLING_POLL_S = 0.05
_SHORTEST_PAUSE_S = 0.005
_LAST_PULLS_LIMIT_S = 4.0
_SLOWEST_LOOK_S = 2.0


class Watch:
    """Watches one job until it is over."""

    def __init__(
        self, options: CollectorOptions, store: EvidenceStore, stop: StopSignal, outbox: Outbox | None = None
    ) -> None:
        """outbox: hears of a hang once it cannot be taken back any more."""
        self._options = options
        self._outbox = outbox or NoopOutbox()
        self._told_of: Notice | None = None
        self._notice_attempt = 0
        self._store = store
        self._control = None if options.control is None else ControlDirectory(options.control)
        job_timeout_s = None if self._control is None else self._control.job_timeout_s()
        self._rules = NoticeRules(stall_after_s=options.stall_after_s, job_timeout_s=job_timeout_s)
        self._roster = Roster(
            options.sockets,
            self._control,
            sources_of(options.backends),
            native_prefix=options.native_prefix,
            contained_run=options.run_id if options.contained else "",
        )
        slowest_s = min(_SLOWEST_LOOK_S, self._rules.progress_limit_s / 5)
        self._poller = Poller(poll_s=options.poll_s, slowest_s=slowest_s)
        self._names = DirectoryWatch(path for path in (options.sockets, options.control) if path is not None)
        self._journalist = Journalist(store, options.world_size)
        self._finished: queue.SimpleQueue[Finished] = queue.SimpleQueue()
        self._end = End(options, self._control, stop)
        self._ending = ""
        self._notice: Notice | None = None
        self._settling = Deadline(0)
        self._pulled_s: float | None = None
        self._asked_ns: int | None = None

    def run(self) -> None:
        """Until the job is over, or somebody says stop; then finish what is under way."""
        self._store.event(EventName.WATCHING, detail=str(self._options.sockets))
        try:
            while not self._ends():
                self._step()
                self._names.wait(self._pause_s())
            self._finish()
        finally:
            self._poller.close()
            self._names.close()
            self._roster.close()

    def _ends(self) -> bool:
        self._ending = self._end.reason(self._roster)
        return bool(self._ending)

    def _step(self) -> None:
        self._roster.refresh()
        if self._roster.follow_restart():
            self._begin_anew()
        self._hasten_looks_after_an_exit()
        self._poller.poll(self._roster.candidates)
        self._take_finished()
        self._journalist.report(self._roster.all_seen)
        self._hear_the_controller()
        if self._notice is None:
            self._look_for_trouble()
        if self._notice is not None:
            self._go_on_with_episode()
        self._serve_ends()
        self._copy_native_files()
        self._journalist.complete_when_done(self._roster)
        self._tell_of_incident()

    # Noticing.

    def _look_for_trouble(self) -> None:
        views = [rank.view() for rank in self._roster.current]
        notice = find_notice(views, self._rules, now_s=time.monotonic(), now_ns=time.time_ns())
        if notice is not None:
            self._begin_episode(notice)

    def _hear_the_controller(self) -> None:
        asked_ns = None if self._control is None else self._control.asked_ns()
        if asked_ns is not None and asked_ns != self._asked_ns:
            self._asked_ns = asked_ns
            self._begin_episode(Notice(reason=PullReason.ASKED, sentence="the controller asked"))

    def _begin_episode(self, notice: Notice) -> None:
        self._notice = notice
        self._notice_attempt = self._roster.attempt
        self._settling = Deadline(self._options.settle_s if notice.needs_settling else 0)
        self._pulled_s = None
        for rank in self._roster.current:
            if rank.running:
                rank.pulled = False
                rank.thaw()
        self._journalist.noticed(notice)

    def _go_on_with_episode(self) -> None:
        if self._pulled_s is None:
            if self._settling.over or settled([rank.view() for rank in self._roster.current]):
                self._pull_from_all()
        elif self._recovered():
            self._notice = None
            for rank in self._roster.current:
                rank.thaw()
            self._store.withdraw_notice()
            self._store.event(EventName.WATCHING, detail="the job goes on after all")

    def _recovered(self) -> bool:
        """Whether the stuck operations are over and new ones began in time. One that raised is over too, but begins
        none; and after a timeout nccl2 lets a rank out of a batch of sends and receives, and it goes on for a while."""
        ranks = self._roster.current
        if self._notice is None or self._pulled_s is None or not all(rank.view().running for rank in ranks):
            return False
        stuck = any(operation.key in self._notice.pending for rank in ranks for operation in rank.pending)
        moved_s = max((max(rank.progress_s, rank.advanced_s) for rank in ranks), default=0.0)
        return not stuck and self._pulled_s < moved_s < self._notice.gives_up_s

    def _tell_of_incident(self, *, is_last: bool = False) -> None:
        """Once for each hang, and never for one that may still turn out to be none: not before the job is at its end,
        a rank has ended, or the operation's own timeout is over, after which nothing counts as a recovery. Where there
        is no such timeout the job may hang for good: then after as long again as it took to notice it."""
        notice = self._notice
        if notice is None or notice is self._told_of or self._pulled_s is None:
            return
        ranks = self._roster.current
        until_s = min(notice.gives_up_s, self._pulled_s + self._rules.progress_limit_s)
        may_recover = time.monotonic() < until_s and all(rank.view().running for rank in ranks)
        if may_recover and not is_last:
            return
        self._told_of = notice
        manifest = self._store.manifest
        self._outbox.incident(
            noticed_ns=manifest.noticed_ns or time.time_ns(),
            notice=notice.sentence,
            attempt=self._notice_attempt,
            only_asked=notice.reason is PullReason.ASKED,
        )

    def _begin_anew(self) -> None:
        """A restart: what the earlier attempt left stays, and the new one is watched from its beginning."""
        self._store.event(EventName.RESTART, detail=f"attempt {self._roster.attempt}")
        self._store.completed(False)
        self._tell_of_incident(is_last=True)
        self._notice = None
        self._pulled_s = None
        for rank in self._roster.all_seen:
            if rank.key.attempt < self._roster.attempt and rank.exit is not None:
                self._ack(rank)

    # Pulling.

    def _pull_from_all(self) -> None:
        reason = PullReason.ASKED if self._notice is None else self._notice.reason
        ranks = [rank for rank in self._roster.current if not rank.pulled and not rank.pulling]
        for rank in ranks:
            rank.freeze(self._control)
        for rank, report in pull_each(ranks, reason, self._store):
            rank.recount()
            self._journalist.pulled(rank, report)
        self._await_pulls(_LAST_PULLS_LIMIT_S)
        self._pulled_s = time.monotonic()
        self._journalist.give_up_missing(self._roster)

    def _begin_pull(self, rank: WatchedRank) -> None:
        rank.pulling = True
        reason = PullReason.GONE if self._notice is None else self._notice.reason
        start_pull(rank, order_for(rank, reason), self._store, self._note_finished)

    def _note_finished(self, finished: Finished) -> None:
        self._finished.put(finished)
        self._names.wake()

    def _take_finished(self) -> None:
        """Reports of the pulls that ran beside the loop: of ranks at their end."""
        while not self._finished.empty():
            rank, report = self._finished.get()
            rank.pulling = False
            if rank.exit is not None:
                self._ack(rank)
            self._journalist.pulled(rank, report)

    def _await_pulls(self, limit_s: float) -> None:
        deadline = Deadline(limit_s)
        self._take_finished()
        while any(rank.pulling for rank in self._roster.current) and not deadline.over:
            self._names.wait(min(0.1, deadline.left_s()))
            self._take_finished()

    def _copy_native_files(self) -> None:
        if self._notice is not None and self._pulled_s is not None:
            for rank in self._roster.current:
                self._journalist.copy_native(rank, self._notice.reason, when_whole=True)

    # Letting go.

    def _hasten_looks_after_an_exit(self) -> None:
        """When a rank ended well, see at once where the others stand: they may wait for it for good."""
        if any(rank.orderly_exit and not rank.pulled and not rank.pulling for rank in self._roster.current):
            for rank in self._roster.current:
                rank.next_look_s = 0.0

    def _serve_ends(self) -> None:
        """Pull from a rank at its end if that is still to be done, then let it go. In a hang, all ranks come first."""
        if self._notice is not None and self._pulled_s is None:
            return
        for rank in self._roster.current:
            if rank.pulling:
                continue
            if rank.exit is not None and not rank.acked:
                self._serve_exit(rank)
            elif rank.state is RankState.GONE and not rank.pulled:
                if rank.waited_long:
                    self._begin_pull(rank)
                rank.pulled = True

    def _serve_exit(self, rank: WatchedRank) -> None:
        has_dump = bool(self._store.artifacts(rank.key, ArtifactKind.DUMP))
        if rank.pulled and (has_dump or rank.pulled_at_end):
            self._ack(rank)
        else:
            rank.pulled_at_end = True
            self._begin_pull(rank)

    def _ack(self, rank: WatchedRank) -> None:
        if self._control is None or rank.acked:
            return
        rank.acked = True
        if self._control.ack(rank.key):
            self._store.event(EventName.ACKED, rank=rank.key.rank)
        else:
            rank.note("the ack could not be written")

    # Ending.

    def _finish(self) -> None:
        """What ranks do once the job is being torn down is no evidence, so they are not looked at again then."""
        self._store.event(EventName.STOPPING, detail=self._ending)
        if self._control is None or not self._control.torn_down():
            self._roster.refresh()
        if self._notice is not None and self._pulled_s is None:
            self._pull_from_all()
        self._await_pulls(_LAST_PULLS_LIMIT_S)
        for rank in self._roster.current:
            if self._notice is not None:
                self._journalist.copy_native(rank, self._notice.reason, when_whole=False)
            if rank.exit is not None:
                self._ack(rank)
        self._journalist.end(self._roster)
        self._tell_of_incident(is_last=True)

    def _pause_s(self) -> float:
        if self._notice is not None and self._pulled_s is None:
            return _SETTLING_POLL_S
        now_s = time.monotonic()
        waits_s = [rank.next_look_s - now_s for rank in self._roster.current if rank.exit is None and rank.running]
        return min(self._options.poll_s, max(_SHORTEST_PAUSE_S, min(waits_s, default=self._options.poll_s)))
