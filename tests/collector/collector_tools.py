"""Running the collector in a thread, and a control directory to run it against."""

import json
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hangdrill.collector import CollectorEvent, CollectorOptions, collect
from hangdrill.collector.operations_file import MAGIC
from hangdrill.model.errors import HangdrillError
from hangdrill.model.run import Artifact, ArtifactKind, Manifest

DEADLINE_S = 30.0
_T = TypeVar("_T")


def wait_until(probe: Callable[[], _T | None], what: str) -> _T:
    """The probe's first answer that is true."""
    end_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        answer = probe()
        if answer:
            return answer
        threading.Event().wait(0.01)
    raise AssertionError(f"{what}: not within {DEADLINE_S:g} s")


class Job:
    """The directories of a job, and the collector beside it."""

    def __init__(self, root: Path) -> None:
        self.sockets, self.control, self.evidence = root / "sockets", root / "control", root / "evidence"
        self.sockets.mkdir()
        self.control.mkdir()
        self.stop = threading.Event()
        self.manifest: Manifest | None = None
        self.error: HangdrillError | None = None
        self._thread: threading.Thread | None = None

    def options(self, **changes: Any) -> CollectorOptions:
        defaults = {"sockets": self.sockets, "to": self.evidence, "poll_s": 0.02, "settle_s": 0.05, "linger_s": 0.1}
        return CollectorOptions(**{**defaults, "backends": ("gloo",), **changes})

    def start(self, **changes: Any) -> None:
        """Begin to collect; with the control directory unless told otherwise."""
        options = self.options(**{"control": self.control, "run_id": "hd-1", **changes})

        def work() -> None:
            try:
                self.manifest = collect(options, self.stop)
            except HangdrillError as error:
                self.error = error

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def finish(self, *, ask: bool = True) -> Manifest:
        """Ask it to stop (unless it is to end by itself), wait, and read what it left on the disk."""
        assert self._thread is not None
        if ask:
            self.stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the collector did not end"
        if self.error is not None:
            raise self.error
        assert self.read_manifest() == self.manifest
        return self.read_manifest()

    def read_manifest(self) -> Manifest:
        return msgspec.json.decode((self.evidence / "manifest.json").read_bytes(), type=Manifest)

    def events(self, name: str | None = None) -> list[CollectorEvent]:
        try:
            lines = (self.evidence / "events.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        events = [msgspec.json.decode(line, type=CollectorEvent) for line in lines]
        return [event for event in events if name is None or event.event.value == name]

    def await_event(self, name: str, rank: int | None = None) -> CollectorEvent:
        found = wait_until(lambda: [e for e in self.events(name) if rank is None or e.rank == rank], f"event {name}")
        return found[0]

    def await_ack(self, rank: int, attempt: int = 0) -> None:
        wait_until((self.control / f"rank_{rank}.a{attempt}.ack").exists, f"ack of rank {rank}")

    def acks(self) -> set[str]:
        return {path.name for path in self.control.glob("*.ack")}

    def announce(self, rank: int, status: str = "exit", attempt: int = 0, **changes: Any) -> None:
        """Write exit.json as the agent does."""
        end = {"rank": rank, "attempt": attempt, "status": status, "code": 0, "time_ns": time.time_ns(), **changes}
        self._write(f"rank_{rank}.a{attempt}.exit.json", end)

    def facts(self, rank: int, pid: int, attempt: int = 0, groups: tuple[dict[str, Any], ...] = ()) -> None:
        facts = {"rank": rank, "attempt": attempt, "pid": pid, "groups": groups}
        self._write(f"rank_{rank}.a{attempt}.facts.json", facts)

    def operations(self, rank: int, *, collectives: int = 0, p2p: int = 0, last_ns: int = 0, attempt: int = 0) -> None:
        """Write the ops file, counts in slot 0."""
        words = [MAGIC, 8, 256, 0, 0, last_ns, 0, 0, collectives, p2p, 0, last_ns, 0, 0, 0, 0, *[0] * (255 * 8)]
        path = self.control / f"rank_{rank}.a{attempt}.ops"
        data = struct.pack(f"<{len(words)}Q", *words)
        if path.exists():
            with path.open("r+b") as stream:
                stream.write(data)
        else:
            path.write_bytes(data)

    def _write(self, name: str, content: dict[str, Any]) -> None:
        temporary = self.control / f".{name}.tmp"
        temporary.write_text(json.dumps(content))
        temporary.rename(self.control / name)


def kinds(manifest: Manifest, rank: int) -> set[str]:
    """The kinds of artifacts of a rank."""
    return {artifact.kind.value for artifact in manifest.artifacts if artifact.rank == rank}


def only(manifest: Manifest, rank: int, kind: ArtifactKind) -> Artifact:
    """The one artifact of that kind."""
    found = [artifact for artifact in manifest.artifacts if artifact.rank == rank and artifact.kind is kind]
    assert len(found) == 1, found
    return found[0]
