"""`evidence/events.jsonl`: what the collector does, a line each, for the controller (or a person) to follow."""

import os
import time
from enum import Enum
from pathlib import Path

import msgspec

__all__ = ["CollectorEvent", "EventLog", "EventName"]


class EventName(Enum):
    """What happened."""

    WATCHING = "watching"
    RANK = "rank"
    NOTICED = "noticed"
    PULLED = "pulled"
    ACKED = "acked"
    COMPLETE = "complete"
    RESTART = "restart"
    STOPPING = "stopping"


class CollectorEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line. rank None: it concerns the whole job."""

    event: EventName
    time_ns: int
    rank: int | None = None
    detail: str = ""


class EventLog:
    """Appends lines. Each is one write, so that a reader never sees half a line of it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, event: EventName, *, rank: int | None = None, detail: str = "") -> None:
        """Raises OSError when the disk refuses."""
        line = msgspec.json.encode(CollectorEvent(event=event, time_ns=time.time_ns(), rank=rank, detail=detail))
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line + b"\n")
        finally:
            os.close(descriptor)
