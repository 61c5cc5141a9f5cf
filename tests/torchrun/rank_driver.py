"""Drives the rank agent alone under a real torchrun: files and the socket are its only partners, as in the contract.

It plays the controller and the collector as far as a test needs them: orders, release, the pull of a dump, the ack.
"""

import contextlib
import http.client
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 90.0
"""For everything that is awaited: torch's import on a busy machine included."""


class AgentJob:
    """One torchrun job whose ranks run under the agent."""

    def __init__(
        self,
        directory: Path,
        target: Sequence[str],
        *,
        world_size: int = 2,
        python: str = sys.executable,
        fault: Mapping[str, Any] | None = None,
        **orders: Any,
    ) -> None:
        self.world_size = world_size
        self.control, self.sockets = directory / "control", directory / "sockets"
        self.log = directory / "job.log"
        for made in (self.control, self.sockets):
            made.mkdir(mode=0o700, parents=True)
        self._arm(fault or {})
        content = {
            "schema": "hangdrill.agent/1", "run_id": "hd-test", "control": str(self.control),
            "sockets": str(self.sockets), "trigger": "collector", "backend": "gloo", "timeout_s": 4.0,
            "exit_wait_s": 3.0, "max_hold_s": 60.0, "fault": dict(fault or {}), **orders,
        }  # fmt: skip
        (self.control / "agent.json").write_text(json.dumps(content))
        self.process = self._start(python, target)

    def _arm(self, fault: Mapping[str, Any]) -> None:
        for rank in fault.get("ranks", ()):
            if fault["kind"] == "hold-gil":
                os.mkfifo(self.control / f"gil_{rank}", 0o600)
            else:
                (self.control / f"hold_{rank}").touch()

    def _start(self, python: str, target: Sequence[str]) -> "subprocess.Popen[bytes]":
        command = [
            python, "-m", "torch.distributed.run", "--nproc-per-node", str(self.world_size), "--rdzv-backend", "c10d",
            "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1", "-m", "hangdrill.rank", *target,
        ]  # fmt: skip
        environ = {key: value for key, value in os.environ.items() if not key.startswith("TORCHELASTIC_")}
        environ |= {
            "HANGDRILL_AGENT": str(self.control / "agent.json"),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        with self.log.open("wb") as log:
            return subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)

    def read(self, kind: str, rank: int) -> dict[str, Any] | None:
        """control/rank_<rank>.a0.<kind>.json, None while it is not there."""
        path = self.control / f"rank_{rank}.a0.{kind}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def wait(self, what: str, found: Callable[[], Any], *, limit_s: float = DEADLINE_S) -> Any:
        """The first truthy `found()`; AssertionError with the job's log when it does not come."""
        deadline = time.monotonic() + limit_s
        while not (value := found()):
            assert time.monotonic() < deadline, f"{what} did not come\n{self.text()}"
            assert value is not None or not self.is_over() or found(), f"{what}: the job is over\n{self.text()}"
            time.sleep(0.02)
        return value

    def wait_for(self, kind: str, rank: int) -> dict[str, Any]:
        """The content of control/rank_<rank>.a0.<kind>.json."""
        return self.wait(f"{kind}.json of rank {rank}", lambda: self.read(kind, rank))

    def post(self, rank: int, handler: str, *, limit_s: float = 5.0) -> bytes:
        """The answer of one handler. Raises OSError (TimeoutError included) when the rank does not answer."""
        connection = http.client.HTTPConnection("rank")
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(limit_s)
        directory = os.open(self.sockets, os.O_RDONLY)
        try:
            connection.sock.connect(f"/proc/self/fd/{directory}/rank_{rank}.a0.sock")
            connection.request("POST", f"/handler/{handler}")
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
            os.close(directory)
        assert answer.status == 200, f"{handler} of rank {rank}: {answer.status} {body[:200]!r}"
        return body

    def dump(self, rank: int, **limits: float) -> dict[str, Any]:
        """The recorder's full history, by the agent's handler."""
        return pickle.loads(self.post(rank, "hangdrill_dump?backend=gloo", **limits))

    def facts(self, rank: int) -> dict[str, Any]:
        """What the agent knows, with the counts."""
        return json.loads(self.post(rank, "hangdrill_facts"))

    def ack(self, *ranks: int) -> None:
        """Let ranks go whose program is over."""
        for rank in ranks or range(self.world_size):
            (self.control / f"rank_{rank}.a0.ack").touch()

    def release(self) -> None:
        """End every hold."""
        for path in self.control.glob("hold_*"):
            path.unlink()
        for path in self.control.glob("gil_*"):
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                os.write(descriptor, b"!")
                os.close(descriptor)

    def is_over(self) -> bool:
        return self.process.poll() is not None

    def end_code(self) -> int:
        """torchrun's own exit status."""
        return self.process.wait(timeout=DEADLINE_S)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def close(self) -> None:
        """End what is left of the job: only processes of this job's own, by their ids."""
        (self.control / "teardown").touch()
        self.release()
        if not self.is_over():
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=2.0)
        for rank in range(self.world_size):
            facts = self.read("facts", rank)
            if facts is not None and b"hangdrill.rank" in _command_line(facts["pid"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(facts["pid"], signal.SIGKILL)
        self.process.wait(timeout=DEADLINE_S)


def _command_line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@contextlib.contextmanager
def agent_job(directory: Path, target: Sequence[str], **given: Any) -> Iterator[AgentJob]:
    """A job that is ended, whatever happens."""
    job = AgentJob(directory, target, **given)
    try:
        yield job
    finally:
        job.close()


def operations(dump: Mapping[str, Any], group: str = "default_pg") -> list[str]:
    """The names of a group's recorded operations, in order."""
    return [entry["profiling_name"] for entry in dump["entries"] if entry["process_group"][1] == group]
