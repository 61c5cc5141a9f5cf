"""Who is there: finds the ranks of the job by their sockets and their agents' files, and follows their restarts."""

import os
from pathlib import Path

from hangdrill.collector.control import ControlDirectory, RankKey, list_rank_files
from hangdrill.collector.control_plane import RankSocket
from hangdrill.collector.native import NativeFile
from hangdrill.collector.ranks import WatchedRank
from hangdrill.collector.sources import RecorderSource
from hangdrill.model.run import RankState

__all__ = ["Roster", "is_over"]


class Roster:
    """All ranks found so far. A socket file alone may be a dead one's: a rank counts once it showed a sign of life."""

    def __init__(
        self,
        sockets: Path,
        control: ControlDirectory | None,
        sources: tuple[RecorderSource, ...],
        *,
        native_prefix: str | None = None,
        contained_run: str = "",
    ) -> None:
        """contained_run: the run's id, when its ranks are in a container."""
        self._sockets = sockets
        self._directory_fd = os.open(sockets, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._control = control
        self._sources = sources
        self._native_prefix = native_prefix
        self._contained_run = contained_run
        self._ranks: dict[RankKey, WatchedRank] = {}
        self.attempt = 0

    @property
    def candidates(self) -> tuple[WatchedRank, ...]:
        """Everything of the current attempt or a later one that is worth asking."""
        return tuple(rank for key, rank in sorted(self._ranks.items()) if key.attempt >= self.attempt)

    @property
    def current(self) -> tuple[WatchedRank, ...]:
        """The ranks of the current attempt that showed a sign of life, by rank."""
        return tuple(rank for rank in self.candidates if rank.key.attempt == self.attempt and rank.seen)

    @property
    def all_seen(self) -> tuple[WatchedRank, ...]:
        """Of all attempts."""
        return tuple(rank for _, rank in sorted(self._ranks.items()) if rank.seen)

    def refresh(self) -> None:
        """Look at the directories and at /proc."""
        files = {} if self._control is None else self._control.ranks()
        for key, kinds in list_rank_files(self._sockets).items():
            if "sock" in kinds:
                rank = self._find(key)
                if rank.socket is None:
                    rank.socket = RankSocket(self._directory_fd, f"{key.stem}.sock")
        for key in files:
            self._find(key)
        for rank in self.candidates:
            if self._control is not None:
                rank.take_control(self._control, files.get(rank.key, set()))
            rank.take_process()

    def follow_restart(self) -> bool:
        """Whether a later attempt has shown a sign of life; it is the current one from now on."""
        latest = max((rank.key.attempt for rank in self._ranks.values() if rank.seen), default=self.attempt)
        if latest <= self.attempt:
            return False
        self.attempt = latest
        for key, rank in self._ranks.items():
            if key.attempt < latest:
                rank.retire()
        return True

    def missing(self, world_size: int | None) -> tuple[RankKey, ...]:
        """The ranks that were expected and never showed a sign of life in this attempt."""
        seen = {rank.key.rank for rank in self.current}
        return tuple(RankKey(self.attempt, number) for number in range(world_size or 0) if number not in seen)

    def close(self) -> None:
        """Lets go of the directory and the ops files."""
        for rank in self._ranks.values():
            rank.retire()
        os.close(self._directory_fd)

    def _find(self, key: RankKey) -> WatchedRank:
        rank = self._ranks.get(key)
        if rank is None:
            rank = self._ranks[key] = WatchedRank(key, self._sources)
            rank.contained_run = self._contained_run
            rank.native = None if self._native_prefix is None else NativeFile(self._native_prefix, key.rank)
        return rank


def is_over(ranks: tuple[WatchedRank, ...]) -> bool:
    """Whether there were ranks, and none is there any more."""
    return bool(ranks) and all(rank.state in (RankState.GONE, RankState.EXITED) for rank in ranks)
