"""The evidence directory: artifacts that are never overwritten, and the manifest that lists them.

Every file is written under a temporary name, synced and renamed, and the directory synced. A disk that refuses
does not stop the collector (the ranks still wait for their acks): the first failure is kept and reported at the end.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from hangdrill.collector.control import RankKey
from hangdrill.collector.events import EventLog, EventName
from hangdrill.model.errors import MachineError, UsageError
from hangdrill.model.run import Artifact, ArtifactKind, Manifest, PullReason, RankPull

__all__ = ["EvidenceStore", "write_atomically"]

_PER_RANK_AND_KIND_LIMIT = 8
"""A job that stalls and recovers for days must not fill the disk."""


class EvidenceStore:
    """One writer's view of the directory; its methods may be called from several threads."""

    def __init__(self, directory: Path, *, run_id: str = "", world_size: int | None = None) -> None:
        self.directory = directory
        self.failure: MachineError | None = None
        self._lock = threading.RLock()
        self._events = EventLog(directory / "events.jsonl")
        self._ranks: dict[RankKey, RankPull] = {}
        self._manifest = _earlier_manifest(directory, run_id, world_size)
        self._ranks = {RankKey(pull.attempt, pull.rank): pull for pull in self._manifest.ranks}

    @property
    def manifest(self) -> Manifest:
        """As it stands."""
        with self._lock:
            return self._manifest

    def artifacts(self, key: RankKey, kind: ArtifactKind) -> tuple[Artifact, ...]:
        """What there is of one kind for one rank, in the order it came."""
        with self._lock:
            return tuple(
                a for a in self._manifest.artifacts if (a.attempt, a.rank, a.kind) == (key.attempt, key.rank, kind)
            )

    def add(
        self,
        key: RankKey,
        kind: ArtifactKind,
        data: bytes,
        *,
        road: str,
        reason: PullReason,
        name: str,
        extension: str,
        asked_ns: int | None = None,
    ) -> Artifact | None:
        """Store a file as <stem>.<name>.<extension>, or .<name>.2.<extension> when that is taken, and so on.

        asked_ns: when the rank was asked, which is when the evidence was made: symbolising stacks may take seconds.

        None when the disk refused, or when this rank has as many files of this kind as it may have.
        """
        with self._lock:
            if len(self.artifacts(key, kind)) >= _PER_RANK_AND_KIND_LIMIT:
                return None
            path = self._free_name(f"{key.stem}.{name}", extension)
            if not self._try(lambda: write_atomically(path, data), f"write {path}"):
                return None
            artifact = Artifact(
                rank=key.rank,
                attempt=key.attempt,
                kind=kind,
                road=road,
                path=path.name,
                bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                pulled_ns=time.time_ns() if asked_ns is None else asked_ns,
                reason=reason,
            )
            self._replace(artifacts=(*self._manifest.artifacts, artifact))
            return artifact

    def record(self, pulls: Iterable[RankPull]) -> None:
        """Put down what was seen of some ranks, in place of what was put down before."""
        with self._lock:
            before = dict(self._ranks)
            self._ranks.update({RankKey(pull.attempt, pull.rank): pull for pull in pulls})
            if self._ranks != before:
                self._replace(ranks=tuple(self._ranks[key] for key in sorted(self._ranks)))

    def noticed(self, *, time_ns: int, notice: str) -> None:
        """A hang was noticed, and it is not complete yet."""
        self._replace(noticed_ns=time_ns, notice=notice, complete=False)

    def withdraw_notice(self) -> None:
        """The job went on after all: there is no hang, whatever evidence was pulled."""
        self._replace(noticed_ns=None, notice="")

    def completed(self, complete: bool) -> None:
        """Whether every expected rank has been pulled or given up."""
        with self._lock:
            if self._manifest.complete != complete:
                self._replace(complete=complete)

    def event(self, event: EventName, *, rank: int | None = None, detail: str = "") -> None:
        """Append to the event log."""
        with self._lock:
            self._try(lambda: self._events.append(event, rank=rank, detail=detail), "append to events.jsonl")

    def _replace(self, **changes: object) -> None:
        with self._lock:
            self._manifest = msgspec.structs.replace(self._manifest, **changes)
            self.write_manifest()

    def write_manifest(self) -> None:
        """Write it again; done after every change."""
        with self._lock:
            data = msgspec.json.format(msgspec.json.encode(self._manifest), indent=1)
            self._try(lambda: write_atomically(self.directory / "manifest.json", data), "write manifest.json")

    def _free_name(self, stem: str, extension: str) -> Path:
        path = self.directory / f"{stem}.{extension}"
        number = 1
        while path.exists():
            number += 1
            path = self.directory / f"{stem}.{number}.{extension}"
        return path

    def _try(self, action: Callable[[], object], what: str) -> bool:
        try:
            action()
        except OSError as error:
            if self.failure is None:
                self.failure = MachineError(
                    f"cannot {what}: {error.strerror or error}",
                    where=str(self.directory),
                    next_step="free space or name another directory; the ranks were let go all the same",
                )
            return False
        return True


def write_atomically(path: Path, data: bytes) -> None:
    """All of it under its name, or nothing: temporary name, fsync, rename, fsync of the directory. Mode 0600."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _earlier_manifest(directory: Path, run_id: str, world_size: int | None) -> Manifest:
    """Goes on with the manifest of the same run; refuses the evidence of another one, which must not be mixed in."""
    path = directory / "manifest.json"
    try:
        earlier = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return Manifest(run_id=run_id, world_size=world_size)
    except OSError as error:
        raise MachineError(f"cannot read it: {error.strerror}", where=str(path)) from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"not a manifest: {error}", where=str(path), next_step="name an empty directory") from error
    if not run_id or earlier.run_id != run_id:
        raise UsageError(
            f"holds the evidence of another run ({earlier.run_id or 'without an id'})",
            where=str(directory),
            next_step="name an empty directory",
        )
    return earlier if world_size is None else msgspec.structs.replace(earlier, world_size=world_size)
