"""Where things are in a run directory, and writing them so that a reader never sees half a file."""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hangdrill.model.errors import MachineError, UsageError
from hangdrill.model.run import JournalEvent

__all__ = ["Journal", "RunLayout", "create_run_dir", "make_directory", "write_json"]

LEAST_FREE_BYTES = 64 * 1024 * 1024


class RunLayout(msgspec.Struct, frozen=True):
    """The paths of one run directory, see docs/reference/run-directory.md."""

    root: Path

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    @property
    def job_log(self) -> Path:
        return self.root / "job.log"

    @property
    def torchrun_logs(self) -> Path:
        return self.root / "torchrun"

    @property
    def collector_log(self) -> Path:
        return self.root / "collector.log"

    @property
    def control(self) -> Path:
        return self.root / "control"

    @property
    def agent_orders(self) -> Path:
        return self.control / "agent.json"

    @property
    def hooks(self) -> Path:
        return self.control / "hooks.json"

    @property
    def collect_now(self) -> Path:
        return self.control / "collect_now"

    @property
    def teardown(self) -> Path:
        return self.control / "teardown"

    @property
    def collector_exit(self) -> Path:
        return self.control / "collector.exit"

    @property
    def sockets(self) -> Path:
        return self.root / "sockets"

    @property
    def native(self) -> Path:
        return self.root / "native"

    @property
    def evidence(self) -> Path:
        return self.root / "evidence"

    @property
    def manifest(self) -> Path:
        return self.evidence / "manifest.json"

    @property
    def agent_path(self) -> Path:
        return self.root / "agent"

    @property
    def nodes(self) -> Path:
        return self.root / "nodes"

    def node_status(self, node: int) -> Path:
        return self.nodes / f"{node}.json"

    def node_log(self, node: int) -> Path:
        return self.nodes / f"{node}.log"

    def node_evidence(self, node: int) -> Path:
        return self.evidence / f"node{node}"

    def node_native(self, node: int) -> Path:
        """Copies of what torch wrote on this node by itself, where that is not in the run directory."""
        return self.nodes / str(node) / "native"

    @property
    def controller_beat(self) -> Path:
        return self.control / "controller_beat"

    @property
    def inspection(self) -> Path:
        return self.root / "inspection.json"

    @property
    def delivered(self) -> Path:
        return self.root / "delivered.json"

    @property
    def result(self) -> Path:
        return self.root / "result.json"


def create_run_dir(root: Path) -> RunLayout:
    """Make a new, private run directory (0700). UsageError when it exists, MachineError when it cannot be made."""
    layout = RunLayout(root)
    if root.exists():
        raise UsageError(
            "the run directory exists already", where=str(root), next_step="name another one with --out, or remove it"
        )
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700)
        for directory in (layout.control, layout.sockets, layout.native, layout.evidence):
            directory.mkdir(mode=0o700)
        stat = os.statvfs(root)
    except OSError as error:
        raise MachineError(
            f"cannot make the run directory: {error.strerror or error}",
            where=str(root),
            next_step="name a writable directory with --out",
        ) from error
    if stat.f_bavail * stat.f_frsize < LEAST_FREE_BYTES:
        raise MachineError(
            f"less than {LEAST_FREE_BYTES >> 20} MiB are free on this disk",
            where=str(root),
            next_step="free some, or name a directory on another disk with --out",
        )
    return layout


def make_directory(path: Path) -> None:
    """A private directory, if there is none yet. MachineError when it cannot be made."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"cannot make the directory: {error.strerror or error}", where=str(path), next_step="check the rights"
        ) from error


def write_json(path: Path, value: Any) -> None:  # noqa: ANN401 - any struct or plain value that msgspec can encode
    """Write `value` under a temporary name, then rename; mode 0600. MachineError when the disk refuses."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise MachineError(
            f"cannot write: {error.strerror or error}",
            where=str(path),
            next_step="check the disk's free space and rights",
        ) from error


class Journal:
    """Appends to journal.jsonl, one event a line, each flushed at once: a killed controller loses none.

    A full disk must not keep the drill from being torn down, so what cannot be written is kept in `lost`.
    """

    def __init__(self, path: Path, started_s: float) -> None:
        self._path = path
        self._started_s = started_s
        self.lost: list[JournalEvent] = []

    def write(self, name: str, detail: Mapping[str, Any] | None = None) -> JournalEvent:
        """Append one event; returns it."""
        elapsed_s = round(time.monotonic() - self._started_s, 6)
        event = JournalEvent(name=name, elapsed_s=elapsed_s, time_ns=time.time_ns(), detail=dict(detail or {}))
        try:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(event) + b"\n")
        except OSError:
            self.lost.append(event)
        return event
