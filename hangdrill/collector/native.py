"""Copies the dumps that torch writes by itself, byte for byte, without touching the originals.

The drill calls `copy_native` for the roads where no collector runs; the collector uses `NativeFile` while ranks live.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from hangdrill.collector.control import RankKey
from hangdrill.collector.dump_size import count_entries
from hangdrill.collector.store import EvidenceStore
from hangdrill.model.run import ArtifactKind, Manifest, PullReason

__all__ = ["NativeFile", "copy_native", "is_whole"]

_LIMIT_BYTES = 512 * 1024 * 1024


class NativeFile:
    """Rank r's file: the prefix (TORCH_FR_DUMP_TEMP_FILE) with the rank behind it."""

    def __init__(self, prefix: str, rank: int, *, place: Path | None = None) -> None:
        """place: where this host finds it, when that is not the path that the job names."""
        self.path = place or Path(f"{prefix}{rank}")
        self._last_look: tuple[int, int] | None = None
        self._copied: tuple[int, int] | None = None
        self._first_look = self._look()

    def exists(self) -> bool:
        """Whether there is anything at that path."""
        return self.path.exists()

    def copy_when_whole(
        self, store: EvidenceStore, key: RankKey, *, not_before_ns: int, reason: PullReason, even_cut: bool = False
    ) -> bool:
        """Copy it once it is no longer being written: it parses to its end, or two looks found it unchanged.

        even_cut: there will be no later look, so take what is there. A file that was there at the first look, last
        written before not_before_ns, is of an earlier job, and no evidence of this one. One that came or changed since
        is of this job, whatever the clock says that gave it its time.
        """
        look = self._look()
        if look is None or look == self._copied or (look == self._first_look and look[1] < not_before_ns):
            return False
        unchanged, self._last_look = look == self._last_look, look
        return self._copy(store, key, "native", reason, need_whole=not (unchanged or even_cut))

    def copy(self, store: EvidenceStore, key: RankKey, *, road: str, reason: PullReason) -> bool:
        """Copy what is there, whole or cut. False when there is nothing, or nothing new."""
        look = self._look()
        return look is not None and look != self._copied and self._copy(store, key, road, reason, need_whole=False)

    def _copy(self, store: EvidenceStore, key: RankKey, road: str, reason: PullReason, *, need_whole: bool) -> bool:
        look = self._look()
        try:
            data = self.path.read_bytes()
        except OSError:
            return False
        if need_whole and count_entries(data) is None:
            return False
        self._copied = look
        before = store.artifacts(key, ArtifactKind.DUMP)
        if any(artifact.path.startswith(f"{key.stem}.native.") and artifact.bytes >= len(data) for artifact in before):
            return False  # torch wrote a poorer one over it; the richer one is safe already
        added = store.add(key, ArtifactKind.DUMP, data, road=road, reason=reason, name="native", extension="pickle")
        return added is not None

    def _look(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return (status.st_size, status.st_mtime_ns) if 0 < status.st_size <= _LIMIT_BYTES else None


def is_whole(path: Path) -> bool:
    """Whether a dump is there that reads to its end."""
    try:
        return path.stat().st_size <= _LIMIT_BYTES and count_entries(path.read_bytes()) is not None
    except OSError:
        return False


def copy_native(
    prefix: str,
    ranks: Iterable[int],
    evidence_dir: Path,
    *,
    attempt: int = 0,
    run_id: str = "",
    road: str = "native",
    reason: PullReason = PullReason.STALL,
    locate: Callable[[str], Path | None] = Path,
) -> Manifest:
    """Copy every rank's native file that is there into evidence_dir as rank_<r>.a<k>.native.pickle.

    Merges into manifest.json of the same run. A second call copies only what changed since. Raises MachineError when
    the disk refuses, UsageError when the directory holds another run's evidence. locate: where this host finds a path
    of the job; None for one that is gone.
    """
    evidence_dir.mkdir(mode=0o700, exist_ok=True)
    store = EvidenceStore(evidence_dir, run_id=run_id)
    for rank in ranks:
        place = locate(f"{prefix}{rank}")
        if place is not None:
            NativeFile(prefix, rank, place=place).copy(store, RankKey(attempt, rank), road=road, reason=reason)
    store.write_manifest()
    if store.failure is not None:
        raise store.failure
    return store.manifest
