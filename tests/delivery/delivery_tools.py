"""Evidence to deliver, without a job; and stores that misbehave on purpose."""

import hashlib
import threading
import time
from pathlib import Path

import msgspec

from hangdrill.delivery.courier import Courier, Limits
from hangdrill.delivery.record import RECORD, starting_record
from hangdrill.delivery.secrets import Redactor
from hangdrill.model.delivery import Delivery, DeliveryState
from hangdrill.model.run import Artifact, ArtifactKind, Manifest, PullReason

RUN = "hd-abc"
NOW_NS = 1_795_996_546_000_000_000
STAMP = "20261129T235546Z"
QUICK = Limits(tries=3, try_s=2.0, pause_s=0.01, longest_pause_s=0.05)


def make_evidence(
    directory: Path, *, ranks: int = 2, size: int = 2000, run: str = RUN, noticed: bool = True, salt: bytes = b""
) -> Manifest:
    """A directory as the collector leaves it. Each rank has a dump of `size` bytes that no other has."""
    directory.mkdir(parents=True, exist_ok=True)
    artifacts = []
    for rank in range(ranks):
        seed = hashlib.sha256(b"%d %s" % (rank, salt)).digest()
        data = (seed * (size // len(seed) + 1))[:size]
        path = f"rank_{rank}.a0.dump.pickle"
        (directory / path).write_bytes(data)
        artifacts.append(
            Artifact(
                rank=rank,
                kind=ArtifactKind.DUMP,
                road="handler",
                path=path,
                bytes=size,
                sha256=hashlib.sha256(data).hexdigest(),
                pulled_ns=NOW_NS,
                reason=PullReason.STALL,
            )
        )
    manifest = Manifest(
        run_id=run,
        world_size=ranks,
        noticed_ns=NOW_NS if noticed else None,
        notice="all_reduce #4 pending" if noticed else "",
        complete=True,
        artifacts=tuple(artifacts),
    )
    write_manifest(directory, manifest)
    return manifest


def write_manifest(directory: Path, manifest: Manifest) -> None:
    (directory / "manifest.json").write_bytes(msgspec.json.encode(manifest))


def read_delivery(directory: Path) -> Delivery:
    return msgspec.json.decode((directory / RECORD).read_bytes(), type=Delivery)


def states(record: Delivery) -> set[DeliveryState]:
    return {one.state for one in record.artifacts}


def courier_for(evidence: Path, url: str, *, limits: Limits = QUICK, store=None, environ=None) -> Courier:
    record = starting_record(evidence, url, job="train", host="host0")
    extra = {} if store is None else {"opener": lambda _url: store}
    return Courier(evidence, record, redact=Redactor(environ or {}), limits=limits, **extra)


def drive(courier: Courier, *, limit_s: float = 30.0, manifest: bool = True) -> Delivery:
    """Until everything is settled."""
    courier.take()
    if manifest:
        courier.take_manifest()
    courier.step()
    until_s = time.monotonic() + limit_s
    while not courier.settled:
        assert time.monotonic() < until_s, "the delivery was not settled in time"
        courier.wait(0.2)
        courier.step()
    return courier.record


class Wrapped:
    """A store in which a test changes one thing."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.puts: list[str] = []
        self.lock = threading.Lock()

    @property
    def write_once(self):
        return self.inner.write_once

    def url_of(self, name):
        return self.inner.url_of(name)

    def put_new(self, name, data):
        with self.lock:
            self.puts.append(name.rpartition("/")[2])
        self.inner.put_new(name, data)

    def digest(self, name):
        return self.inner.digest(name)

    def names(self, directory):
        return self.inner.names(directory)

    def look(self):
        self.inner.look()

    def sweep(self, name):
        self.inner.sweep(name)
