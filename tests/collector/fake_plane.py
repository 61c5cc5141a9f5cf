"""A rank's control plane without torch: answers as told, or as badly as told. Also a program of its own.

Behaviours: silent (never answers), slow (a byte now and then), half (ends in the middle), garbage (not HTTP), status
(500), disappears (closes at once), endless (a body without an end), lies (200 and nonsense).
"""

import json
import pickle
import socketserver
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

BEHAVIOURS = ("silent", "slow", "half", "garbage", "status", "disappears", "endless", "lies")


class FakeRank:
    """answers: handler -> body. A handler not named is a 404, as in torch. hostile: handler (or "*") -> behaviour."""

    def __init__(
        self,
        sockets: Path,
        rank: int,
        *,
        attempt: int = 0,
        answers: Mapping[str, bytes] | None = None,
        hostile: Mapping[str, str] | None = None,
    ) -> None:
        self.answers = dict(answers or {})
        self.hostile = dict(hostile or {})
        self.asked: list[str] = []
        self.closing = threading.Event()
        self.path = sockets / f"rank_{rank}.a{attempt}.sock"
        self._server = _Server(str(self.path), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def handlers_asked(self) -> set[str]:
        """Which handlers were asked, without their parameters."""
        return {urlsplit(target).path.rpartition("/")[2] for target in self.asked}

    def close(self) -> None:
        """Stop listening; safe to repeat."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> "FakeRank":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, path: str, owner: FakeRank) -> None:
        self.owner = owner
        super().__init__(path, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left early is part of the game."""


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        owner = self.server.owner
        target = self.rfile.readline().split(b" ")[1].decode()
        while self.rfile.readline().strip():
            pass
        owner.asked.append(target)
        parts = urlsplit(target)
        handler = parts.path.rpartition("/")[2]
        behaviour = owner.hostile.get(handler) or owner.hostile.get("*")
        if behaviour is not None:
            getattr(self, f"_{behaviour}")()
            return
        body = owner.answers.get(f"{handler}:{dict(parse_qsl(parts.query)).get('backend', '')}")
        body = owner.answers.get(handler) if body is None else body
        self._answer("404 Not Found", b"no such handler") if body is None else self._answer("200 OK", body)

    def _answer(self, status: str, body: bytes) -> None:
        self.wfile.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    def _silent(self) -> None:
        self.server.owner.closing.wait(60)

    def _slow(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not self.server.owner.closing.wait(0.02):
            self.wfile.write(b" ")

    def _half(self) -> None:
        self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"entries": [')

    def _garbage(self) -> None:
        self.wfile.write(b"\x00\xff\x00 nothing that HTTP knows\r\n\r\n")

    def _status(self) -> None:
        self._answer("500 Internal Server Error", b"the handler threw")

    def _disappears(self) -> None:
        return

    def _endless(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not self.server.owner.closing.is_set():
            self.wfile.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")

    def _lies(self) -> None:
        self._answer("200 OK", b'["not", "what", "was", "asked"]')


def operation(sequence: int, *, age_s: float = 0.0, retired: bool = False, **changes: Any) -> dict[str, Any]:
    """An entry of the recorder as the control plane's JSON has it."""
    return {
        "collective_seq_id": sequence, "p2p_seq_id": 0, "op_id": sequence, "pg_id": 0, "is_p2p": False,
        "process_group": ["0", "default_pg"], "profiling_name": "gloo:all_reduce", "record_id": sequence - 1,
        "retired": retired, "state": "scheduled", "time_created_ns": time.time_ns() - int(age_s * 1e9),
        "timeout_ms": 5000, "input_sizes": [[4]], **changes,
    }  # fmt: skip


def trace(*operations: dict[str, Any], enqueued: int | None = None) -> bytes:
    """The answer of fr_trace_json; numbers of pg_status are text there."""
    last = enqueued if enqueued is not None else max((entry["op_id"] for entry in operations), default=0)
    status = {"last_enqueued_collective": str(last), "last_completed_collective": "0", "last_started_collective": "-1"}
    root = {"version": "2.10", "pg_status": {"0": status}, "pg_config": {}}
    return json.dumps({**root, "entries": list(operations)} if operations else root).encode()


NO_RECORDER = b'{"comm_lib_version":"","nccl_comm_state":{},"pg_config":{},"pg_status":{},"version":"2.10"}'
HEALTHY = b'{"healthy":true,"unhealthy_backends":[]}'


def dump(entries: int) -> bytes:
    """A recorder's pickle with so many entries."""
    listed = [{**operation(number + 1), "process_group": ("0", "default_pg")} for number in range(entries)]
    return pickle.dumps({"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": listed}, 2)


def waiting_rank(sockets: Path, rank: int, *, sequence: int = 4, age_s: float = 60.0, **options: Any) -> FakeRank:
    """A rank inside an operation, with an agent's handler."""
    answers = {
        "fr_trace_json": NO_RECORDER,
        "fr_trace_json:gloo": trace(operation(sequence, age_s=age_s)),
        "c10d_health_check": HEALTHY,
        "hangdrill_dump:gloo": dump(sequence),
        "dump_traceback": b"Thread 1: in all_reduce",
    }
    return FakeRank(sockets, rank, answers={**answers, **options.pop("answers", {})}, **options)


def idle_rank(sockets: Path, rank: int, *, sequence: int = 3, **options: Any) -> FakeRank:
    """A rank that has finished all its operations so far."""
    answers = {"fr_trace_json:gloo": trace(operation(sequence, retired=True)), "hangdrill_dump:gloo": dump(sequence)}
    return waiting_rank(sockets, rank, answers={**answers, **options.pop("answers", {})}, **options)


if __name__ == "__main__":
    patient = {"fr_trace_json:gloo": trace(operation(4, timeout_ms=600_000))}
    make = {"waiting": waiting_rank, "idle": idle_rank, "patient": partial(waiting_rank, answers=patient)}[sys.argv[3]]
    with make(Path(sys.argv[1]), int(sys.argv[2])):
        print("ready", flush=True)
        sys.stdin.read()
