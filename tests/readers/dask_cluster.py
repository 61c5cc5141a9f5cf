"""A real dask scheduler and its workers, as processes of their own that are surely ended."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from reader_tools import DEADLINE_S, environ, wait_until


class DaskCluster:
    """The scheduler listens at a port that it chose itself; `start_worker` adds a worker with its nanny."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.file = place / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file")
        wait_until(lambda: self._address() or self.scheduler.poll() is not None, "a dask scheduler")
        self.spec = f"dask://{self._address()}"

    def start_worker(self, **more: str) -> None:
        """Whether it has come is for the connection to find out."""
        local = self.place / f"worker-{len(self.processes)}"
        self._start("dask_worker", "--nthreads", "1", "--local-directory", str(local), "--scheduler-file", **more)

    def close(self) -> None:
        for process in reversed(self.processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=DEADLINE_S)

    def _start(self, module: str, *arguments: str, **more: str) -> "subprocess.Popen[bytes]":
        settings = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0", "HANGDRILL_TEST_WORKER": "1", **more}
        with (self.place / f"{module}-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{module}", "--no-dashboard", *arguments, str(self.file)],
                env=environ(**settings),
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        self.processes.append(process)
        return process

    def _address(self) -> str:
        try:
            return str(json.loads(self.file.read_text())["address"].removeprefix("tcp://"))
        except (OSError, ValueError):
            return ""
