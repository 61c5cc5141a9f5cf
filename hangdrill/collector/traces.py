"""Reads the control plane's JSON, as far as watching needs it: which operations are pending, and since when."""

from typing import Any

import msgspec

from hangdrill.collector.control_plane import NoAnswer, Silence
from hangdrill.collector.sources import RecorderSource

__all__ = ["Health", "OperationKey", "PendingOperation", "Trace", "read_health", "read_trace"]


class OperationKey(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """What all ranks of a group call the same operation."""

    group_name: str
    p2p: bool
    sequence: int


class PendingOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that a rank entered and has not left. created_ns by the wall clock of the rank's host."""

    key: OperationKey
    group_desc: str
    name: str
    created_ns: int
    timeout_ms: int

    @property
    def title(self) -> str:
        """`all_reduce #4 of default_pg`, as a notice names it."""
        group = (
            self.group_desc if self.group_desc and self.group_desc != "undefined" else f"group {self.key.group_name}"
        )
        return f"{self.name} #{self.key.sequence} of {group}"


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. empty: the recorder knows no group, so it is not the one the job uses (or there is none yet).

    enqueued: a number that grows with every operation the recorder sees.
    """

    source: RecorderSource
    body: bytes
    empty: bool
    enqueued: int
    pending: tuple[PendingOperation, ...]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`c10d_health_check`: torch's own opinion, for the backends that have one."""

    healthy: bool
    unhealthy_backends: tuple[str, ...] = ()


class _Entry(msgspec.Struct, frozen=True):
    process_group: tuple[str, str] = ("", "")
    profiling_name: str = ""
    collective_seq_id: int = 0
    p2p_seq_id: int = 0
    op_id: int = 0
    pg_id: int = 0
    is_p2p: bool = False
    retired: bool = False
    state: str = ""
    time_created_ns: int = 0
    timeout_ms: int = 0


class _Status(msgspec.Struct, frozen=True):
    last_enqueued_collective: int = -1
    last_completed_collective: int = -1


class _Answer(msgspec.Struct, frozen=True):
    entries: tuple[_Entry, ...] = ()
    pg_status: dict[str, _Status] = {}
    pg_config: dict[str, Any] = {}


_ANSWER = msgspec.json.Decoder(_Answer, strict=False)
_HEALTH = msgspec.json.Decoder(Health)


def read_trace(body: bytes, source: RecorderSource) -> Trace:
    """Raises NoAnswer (garbled) for anything but a trace: a half one, another program's answer, a list."""
    try:
        answer = _ANSWER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NoAnswer(Silence.GARBLED, f"{source.trace_handler}: {error}"[:200]) from error
    pending = tuple(_pending(entry) for entry in answer.entries if _is_pending(entry, answer, source))
    empty = not (answer.entries or answer.pg_status or answer.pg_config)
    enqueued = sum(status.last_enqueued_collective for status in answer.pg_status.values())
    return Trace(source=source, body=body, empty=empty, enqueued=enqueued, pending=pending)


def read_health(body: bytes) -> Health:
    """Raises NoAnswer (garbled)."""
    try:
        return _HEALTH.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NoAnswer(Silence.GARBLED, f"c10d_health_check: {error}"[:200]) from error


def _is_pending(entry: _Entry, answer: _Answer, source: RecorderSource) -> bool:
    """Not retired and not completed: gloo never says completed, only retired.

    The parts of a batched p2p stay "scheduled" for good in legacy (pytorch 137969), so there the group's own
    count of finished operations decides.
    """
    if entry.retired or entry.state == "completed":
        return False
    if source.legacy and entry.is_p2p:
        status = answer.pg_status.get(str(entry.pg_id))
        return status is None or entry.op_id > status.last_completed_collective
    return True


def _pending(entry: _Entry) -> PendingOperation:
    name, desc = entry.process_group
    sequence = entry.p2p_seq_id if entry.is_p2p else entry.collective_seq_id
    return PendingOperation(
        key=OperationKey(group_name=name, p2p=entry.is_p2p, sequence=sequence),
        group_desc=desc,
        name=entry.profiling_name.rpartition(":")[2] or entry.profiling_name,
        created_ns=entry.time_created_ns,
        timeout_ms=entry.timeout_ms,
    )
