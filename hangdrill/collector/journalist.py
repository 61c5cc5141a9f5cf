"""Keeps the manifest and the event log in step with what the watching sees. Decides nothing about ranks."""

import time

from hangdrill.collector.events import EventName
from hangdrill.collector.notice import Notice
from hangdrill.collector.procfs import ProcessStat, started_ns
from hangdrill.collector.ranks import WatchedRank
from hangdrill.collector.roads import PullReport
from hangdrill.collector.roster import Roster, is_over
from hangdrill.collector.store import EvidenceStore
from hangdrill.model.run import PullReason, RankPull, RankState

__all__ = ["Journalist"]


class Journalist:
    """Writes down each change once: the manifest is synced to disk, so not at every look."""

    def __init__(self, store: EvidenceStore, world_size: int | None) -> None:
        self._store = store
        self._world_size = world_size
        self._last: dict[WatchedRank, str] = {}

    def report(self, ranks: tuple[WatchedRank, ...]) -> None:
        """Put down the ranks that came, changed their state or announced their end."""
        changed = []
        for rank in ranks:
            text = _describe(rank)
            if self._last.get(rank) != text:
                self._last[rank] = text
                changed.append(rank)
                self._store.event(EventName.RANK, rank=rank.key.rank, detail=text)
        self._store.record(rank.record() for rank in changed)

    def noticed(self, notice: Notice) -> None:
        """A hang was noticed."""
        self._store.noticed(time_ns=time.time_ns(), notice=notice.sentence)
        self._store.event(EventName.NOTICED, detail=notice.sentence)

    def pulled(self, rank: WatchedRank, report: PullReport) -> None:
        """A pull is over."""
        rank.pulled = True
        rank.pull_answered = report.answered
        rank.dump_entries = report.entries or rank.dump_entries
        for note in report.notes:
            rank.note(note)
        self._store.record([rank.record()])
        self._store.event(EventName.PULLED, rank=rank.key.rank, detail="; ".join(report.notes))

    def give_up_missing(self, roster: Roster) -> None:
        """Ranks that were expected and never seen: nothing can be pulled from them."""
        note = "never seen: no socket that answers and no agent"
        self._store.record(
            RankPull(rank=key.rank, attempt=key.attempt, notes=(note,)) for key in roster.missing(self._world_size)
        )

    def complete_when_done(self, roster: Roster) -> None:
        """Every expected rank was pulled from, or given up."""
        ranks = roster.current
        if not ranks or not all(rank.pulled for rank in ranks) or self._store.manifest.complete:
            return
        recorded = {(pull.attempt, pull.rank) for pull in self._store.manifest.ranks}
        if all((key.attempt, key.rank) in recorded for key in roster.missing(self._world_size)):
            self._store.completed(True)
            self._store.event(EventName.COMPLETE, detail=self._store.manifest.notice or "every rank ended well")

    def copy_native(self, rank: WatchedRank, reason: PullReason, *, when_whole: bool) -> None:
        """What torch wrote by itself for this rank, unless it is older than the process."""
        if rank.native is None:
            return
        reason = PullReason.GONE if rank.state is RankState.GONE else reason
        copied = rank.native.copy_when_whole(
            self._store, rank.key, not_before_ns=_started_ns(rank), reason=reason, even_cut=not when_whole
        )
        if copied:
            self._store.event(EventName.PULLED, rank=rank.key.rank, detail="native file")

    def end(self, roster: Roster) -> None:
        """The last words: how every rank ended. A job that is over has nothing left to pull."""
        self.report(roster.all_seen)
        self._store.record(rank.record() for rank in roster.all_seen)
        self.give_up_missing(roster)
        if is_over(roster.current):
            for rank in roster.current:
                rank.pulled = True
        self.complete_when_done(roster)
        self._store.write_manifest()


def _started_ns(rank: WatchedRank) -> int:
    if rank.started_ticks is None:
        return 0
    return (started_ns(ProcessStat(letter="", started_ticks=rank.started_ticks)) or 0) - 1_000_000_000


def _describe(rank: WatchedRank) -> str:
    text = f"{rank.state.value}, pid {rank.pid or 'unknown'}"
    if rank.exit is None:
        return text
    return f"{text}, announced {rank.exit.status} {rank.exit.exception_type or rank.exit.code}"
