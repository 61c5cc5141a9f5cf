"""A job on this host that is one process and its descendants, in a session of its own."""

import contextlib
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from hangdrill.model.errors import MachineError
from hangdrill.model.run import Leftover
from hangdrill.model.scenario import Teardown

__all__ = ["LocalJob", "start_local"]


class LocalJob:
    """Wraps the launcher's process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def poll(self) -> int | None:
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def pids(self) -> tuple[int, ...]:
        return (self._process.pid,)

    def close(self) -> None:
        self._process.poll()

    def remove(self) -> None:
        """There is no container."""

    def undergo(self, teardown: Teardown) -> None:
        """A job of plain processes has no teardown of its own."""

    def locate(self, path: str) -> Path | None:
        """The job sees this host's files."""
        return Path(path)

    def leftovers(self) -> tuple[Leftover, ...]:
        """Processes only, and those are the supervisor's."""
        return ()


def start_local(command: Sequence[str], *, environ: Mapping[str, str], cwd: str, log_path: str) -> LocalJob:
    """Start `command` with its output appended to `log_path`; MachineError when the system refuses.

    A session of its own keeps the terminal's Ctrl-C away from the job: only the supervisor ends it.
    """
    try:
        with Path(log_path).open("ab") as log:
            process = subprocess.Popen(
                list(command),
                env=dict(environ),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise MachineError(
            f"cannot start {command[0]}: {error.strerror or error}",
            where=error.filename or "",
            next_step="check that the program exists and may be executed, and that memory and processes are left",
        ) from error
    return LocalJob(process)
