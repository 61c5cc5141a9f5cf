"""`evidence/delivery.json`: the state of a delivery, beside the evidence that it is about. One writer, under a lock."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from hangdrill.delivery.names import Address
from hangdrill.model.delivery import Delivery, HookCalls
from hangdrill.model.errors import MachineError, UsageError
from hangdrill.model.run import Manifest

__all__ = [
    "CALLS",
    "RECORD",
    "find_records",
    "locked",
    "read_calls",
    "read_manifest",
    "read_record",
    "starting_record",
    "write_record",
]

RECORD = "delivery.json"
CALLS = "incident.json"
_LOCK = ".delivery.lock"
_LOCK_WAIT_S = 5.0
T = TypeVar("T")


@contextmanager
def locked(evidence: Path) -> Iterator[None]:
    """This process alone delivers from the directory; MachineError when another one does."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(evidence / _LOCK, timeout=_LOCK_WAIT_S, mode=0o600):
            yield
    except Timeout as error:
        raise MachineError(
            "another process delivers from this directory", where=str(evidence), next_step="wait until it has ended"
        ) from error


def read_manifest(evidence: Path) -> Manifest | None:
    """As it stands; None when there is none yet, or it is damaged."""
    return _read(evidence / "manifest.json", Manifest)


def read_record(evidence: Path) -> Delivery | None:
    """The delivery so far; None when none was begun."""
    return _read(evidence / RECORD, Delivery)


def read_calls(evidence: Path) -> HookCalls | None:
    """The calls of hooks so far; None when none was made."""
    return _read(evidence / CALLS, HookCalls)


def find_records(evidence: Path) -> list[Path]:
    """The directories that have a record: the evidence directory, or one a host in it."""
    places = [evidence, *sorted(path for path in evidence.glob("*") if path.is_dir())] if evidence.is_dir() else []
    return [place for place in places if (place / RECORD).is_file()]


def write_record(path: Path, value: msgspec.Struct) -> None:
    """Whole or not at all, mode 0600. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    data = msgspec.json.format(msgspec.json.encode(value), indent=1)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def starting_record(
    evidence: Path, url: str, *, job: str = "", run: str = "", host: str = "", started_ns: int | None = None
) -> Delivery:
    """The record to go on with: an earlier one of the same target, else a new one.

    Raises UsageError when the directory was being delivered elsewhere: its record would be lost.
    """
    earlier = read_record(evidence)
    if earlier is not None:
        if earlier.url.rstrip("/") != url.rstrip("/"):
            raise UsageError(
                f"this evidence is being delivered to {earlier.url}",
                where=str(evidence / RECORD),
                next_step="name that target, or move delivery.json away to deliver it once more, elsewhere",
            )
        return msgspec.structs.replace(earlier, problem="", mend="", complete=False)
    manifest = read_manifest(evidence)
    first_ns = (
        min((one.pulled_ns for one in manifest.artifacts), default=time.time_ns()) if manifest else time.time_ns()
    )
    address = Address(
        job=job or "job",
        # Two runs without an id must not meet in one place.
        run=run or (manifest.run_id if manifest else "") or os.urandom(4).hex(),
        host=host or socket.gethostname(),
        started_ns=first_ns if started_ns is None else started_ns,
    )
    return Delivery(
        url=url,
        prefix=f"{url.rstrip('/')}/{address.directory}",
        job=address.job,
        run=address.run,
        host=address.host,
        started_ns=address.started_ns,
    )


def address_of(record: Delivery) -> Address:
    """Where this delivery goes."""
    return Address(job=record.job, run=record.run, host=record.host, started_ns=record.started_ns)


def _read(path: Path, shape: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except (OSError, msgspec.MsgspecError):
        return None
