"""Takes every artifact of an evidence directory to the target: bounded in tries, in time and in what runs at once.

Each try is a thread of its own, so that a store that hangs holds up nothing but itself: a try that is not over in time
is given up, and whatever it still does is harmless, for nothing is ever written twice. What counts as delivered was
read back. The manifest comes last: where it is, everything is.
"""

import hashlib
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from hangdrill.delivery.opening import open_store
from hangdrill.delivery.problems import Meaning, meaning_of
from hangdrill.delivery.record import RECORD, address_of, read_manifest, write_record
from hangdrill.delivery.sending import MANIFEST, Sender
from hangdrill.delivery.stores import Store
from hangdrill.model.delivery import DeliveredArtifact, Delivery, DeliveryState

__all__ = ["MANIFEST", "Courier", "Limits"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """tries: of one artifact. try_s: how long one may take, and its bytes at the slowest rate on top of that.
    pause_s: before the second; doubled each time."""

    tries: int = 5
    try_s: float = 10.0
    slowest_bytes_per_s: float = 2e6
    pause_s: float = 0.5
    longest_pause_s: float = 8.0
    at_once: int = 4


class _Parcel:
    """One artifact on its way."""

    def __init__(self, artifact: DeliveredArtifact) -> None:
        self.artifact = artifact
        self.due_s = 0.0
        self.started_s: float | None = None
        self.number = 0
        """Of the try that is under way; a later answer of an earlier one is not waited for."""


class _Outcome(msgspec.Struct, frozen=True):
    path: str
    number: int
    problem: Meaning | None


class Courier:
    """Delivers from one directory; call `step` until `settled`."""

    def __init__(
        self,
        evidence: Path,
        record: Delivery,
        *,
        redact: Callable[[str], str],
        limits: Limits | None = None,
        opener: Callable[[str], Store] = open_store,
    ) -> None:
        self.evidence = evidence
        self.record = record
        self._address = address_of(record)
        self._redact = redact
        self._limits = limits or Limits()
        self._opener = opener
        self._sender = Sender(evidence, record.url, self._address, opener)
        self._parcels: dict[str, _Parcel] = {
            one.path: _Parcel(_again(one)) for one in record.artifacts if not _is_outdated(one)
        }
        self._outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        self._manifest_wanted = False

    @property
    def settled(self) -> bool:
        """Whether nothing is on its way and nothing is to be tried again."""
        return all(parcel.artifact.state is not DeliveryState.PENDING for parcel in self._parcels.values())

    def take(self) -> None:
        """Take on what is new in the manifest."""
        manifest = read_manifest(self.evidence)
        for artifact in manifest.artifacts if manifest is not None else ():
            if artifact.path not in self._parcels:
                self._add(artifact.path, artifact.bytes, artifact.sha256)

    def take_manifest(self) -> None:
        """The manifest as it is now: nobody writes to it any more. It goes once everything else is there."""
        self._manifest_wanted = True

    def step(self) -> None:
        """Gather what came of tries, give up those that hang, begin what is due. Does not wait."""
        changed = self._gather()
        now_s = time.monotonic()
        for parcel in self._parcels.values():
            limit_s = self._limits.try_s + parcel.artifact.bytes / self._limits.slowest_bytes_per_s
            if parcel.started_s is not None and now_s - parcel.started_s > limit_s:
                what = f"no answer within {limit_s:.0f} s"
                self._failed(parcel, Meaning(what, "check the network and the store", again=True))
                changed = True
        if self._manifest_wanted and self._all_delivered():
            self._manifest_wanted = False
            self._add_manifest()
            changed = True
        under_way = sum(parcel.started_s is not None for parcel in self._parcels.values())
        for parcel in self._parcels.values():
            waits = parcel.artifact.state is DeliveryState.PENDING and parcel.started_s is None
            if waits and parcel.due_s <= now_s and under_way < self._limits.at_once:
                under_way += 1
                self._begin(parcel)
                changed = True
        if changed:
            self.save()

    def wait(self, seconds_s: float) -> None:
        """Until a try is over, at most so long."""
        try:
            outcome = self._outcomes.get(timeout=max(0.0, seconds_s))
        except queue.Empty:
            return
        self._outcomes.put(outcome)

    def give_up(self, why: str) -> None:
        """The time is over: what is left stays pending, in the spool."""
        for parcel in self._parcels.values():
            if parcel.artifact.state is DeliveryState.PENDING:
                parcel.number += 1  # a late answer is not heard
                parcel.started_s = None
                last = parcel.artifact.last_error or why
                parcel.artifact = msgspec.structs.replace(parcel.artifact, last_error=last)
        self.save()

    def save(self) -> None:
        """Write the record. A disk that refuses does not stop the delivery."""
        artifacts = tuple(parcel.artifact for parcel in self._parcels.values())
        names = {one.path for one in artifacts if one.state is DeliveryState.DELIVERED}
        whole = bool(artifacts) and len(names) == len(artifacts) and any(name.startswith("manifest") for name in names)
        store = self._sender.store
        self.record = msgspec.structs.replace(
            self.record,
            artifacts=artifacts,
            complete=whole,
            write_once=self.record.write_once if store is None else store.write_once,
            updated_ns=time.time_ns(),
        )
        try:
            write_record(self.evidence / RECORD, self.record)
        except OSError as error:
            self.record = msgspec.structs.replace(self.record, problem=f"cannot write delivery.json: {error.strerror}")

    def _add(self, path: str, size: int, sha256: str) -> None:
        url = f"{self.record.url.rstrip('/')}/{self._address.name_of(path)}"
        self._parcels[path] = _Parcel(DeliveredArtifact(path=path, url=url, bytes=size, sha256=sha256))

    def _add_manifest(self) -> None:
        """Under a further name when an earlier manifest of this directory was delivered and has changed since."""
        try:
            data = (self.evidence / MANIFEST).read_bytes()
        except OSError:
            return
        digest = hashlib.sha256(data).hexdigest()
        number, name = 1, MANIFEST
        while name in self._parcels and self._parcels[name].artifact.sha256 != digest:
            number += 1
            name = f"manifest.{number}.json"
        if name not in self._parcels:
            self._add(name, len(data), digest)

    def _all_delivered(self) -> bool:
        return all(parcel.artifact.state is DeliveryState.DELIVERED for parcel in self._parcels.values())

    def _begin(self, parcel: _Parcel) -> None:
        parcel.number += 1
        parcel.started_s = time.monotonic()
        artifact = parcel.artifact
        parcel.artifact = msgspec.structs.replace(
            artifact, attempts=artifact.attempts + 1, first_try_ns=artifact.first_try_ns or time.time_ns()
        )
        threading.Thread(
            target=self._try, args=(artifact, parcel.number), name=f"deliver {artifact.path}", daemon=True
        ).start()

    def _try(self, artifact: DeliveredArtifact, number: int) -> None:
        problem: Meaning | None = None
        try:
            self._sender.send(artifact)
        except BaseException as error:  # a stranger's file system may raise anything
            problem = meaning_of(error, self.record.url)
        self._outcomes.put(_Outcome(artifact.path, number, problem))

    def _gather(self) -> bool:
        changed = False
        while not self._outcomes.empty():
            outcome = self._outcomes.get()
            parcel = self._parcels[outcome.path]
            if outcome.problem is None:
                if parcel.artifact.state is not DeliveryState.DELIVERED:
                    parcel.started_s = None
                    parcel.artifact = msgspec.structs.replace(
                        parcel.artifact,
                        state=DeliveryState.DELIVERED,
                        delivered_ns=time.time_ns(),
                        last_error="",
                        mend="",
                    )
                    changed = True
            elif outcome.number == parcel.number and parcel.started_s is not None:
                self._failed(parcel, outcome.problem)
                changed = True
        return changed

    def _failed(self, parcel: _Parcel, meaning: Meaning) -> None:
        parcel.started_s = None
        parcel.number += 1
        tries = parcel.artifact.attempts
        again = meaning.again and tries < self._limits.tries
        pause_s = min(self._limits.pause_s * 2.0 ** (tries - 1), self._limits.longest_pause_s)
        parcel.due_s = time.monotonic() + pause_s
        parcel.artifact = msgspec.structs.replace(
            parcel.artifact,
            state=DeliveryState.PENDING if again else DeliveryState.FAILED,
            last_error=self._redact(meaning.what),
            mend=self._redact(meaning.mend),
        )


def _is_outdated(artifact: DeliveredArtifact) -> bool:
    """A manifest that never got there: the one that is on the disk now takes its place."""
    return artifact.path.startswith("manifest.") and artifact.state is not DeliveryState.DELIVERED


def _again(artifact: DeliveredArtifact) -> DeliveredArtifact:
    """At a later call everything is looked at once more: what is there counts, what failed gets its tries anew."""
    return msgspec.structs.replace(artifact, state=DeliveryState.PENDING, attempts=0, last_error="", mend="")
