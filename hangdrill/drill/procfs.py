"""Processes of this user as /proc shows them, and signals that cannot hit a stranger.

A process is known by its pid *and* its start time, so that a pid that was used again is never signalled.
"""

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple

import msgspec

__all__ = [
    "CONTROLLER_VARIABLE",
    "NODE_VARIABLE",
    "RUN_ID_VARIABLE",
    "ProcessId",
    "ProcessInfo",
    "is_alive",
    "own_id",
    "parse_id",
    "pid_inside",
    "read_process",
    "scan",
    "send_signal",
]

RUN_ID_VARIABLE = "HANGDRILL_RUN_ID"
CONTROLLER_VARIABLE = "HANGDRILL_CONTROLLER"
"""pid:ticks of the controller, in the environment of all its processes, so that orphans can be told apart."""
NODE_VARIABLE = "HANGDRILL_NODE"
"""The number of the node, in the environment of all processes that a node process starts: two may share a host."""
_PROC = Path("/proc")
_MARK = b"HANGDRILL_"


class ProcessId(NamedTuple):
    """One process for certain: the pid, and its start in clock ticks since boot."""

    pid: int
    started_ticks: int


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A process at the moment it was looked at. state is the letter of /proc: R, S, D, T (stopped), Z (zombie), ..."""

    id: ProcessId
    name: str
    parent: int
    group: int
    session: int
    state: str
    run_id: str | None = None
    controller: ProcessId | None = None
    node: str | None = None

    @property
    def alive(self) -> bool:
        """A zombie is over: only its parent has not looked yet."""
        return self.state not in {"Z", "X"}

    @property
    def stopped(self) -> bool:
        """Stopped by SIGSTOP or a tracer."""
        return self.state in {"T", "t"}


def read_process(pid: int) -> ProcessInfo | None:
    """What /proc says of one process; None when there is none, or it is not this user's."""
    directory = _PROC / str(pid)
    try:
        if directory.stat().st_uid != os.getuid():
            return None
        text = (directory / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name stands in parentheses and may itself hold spaces and parentheses.
    before, _, after = text.rpartition(")")
    fields = after.split()
    marks = _marks(directory)
    return ProcessInfo(
        id=ProcessId(pid, int(fields[19])),
        name=before.partition("(")[2],
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        state=fields[0],
        run_id=marks.get(RUN_ID_VARIABLE),
        controller=parse_id(marks.get(CONTROLLER_VARIABLE, "")),
        node=marks.get(NODE_VARIABLE),
    )


def own_id() -> ProcessId:
    """This process."""
    found = read_process(os.getpid())
    return found.id if found is not None else ProcessId(os.getpid(), 0)


def is_alive(process: ProcessId) -> bool:
    """Whether this very process still lives."""
    found = read_process(process.pid)
    return found is not None and found.alive and found.id == process


def pid_inside(pid: int) -> int | None:
    """What a process calls its own pid: another number in a container."""
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return None


def scan() -> tuple[ProcessInfo, ...]:
    """All processes of this user, zombies included."""
    pids = (int(entry) for entry in os.listdir(_PROC) if entry.isdigit())  # noqa: PTH208 - one call, hundreds of entries
    return tuple(found for found in map(read_process, pids) if found is not None)


def send_signal(process: ProcessId, number: signal.Signals) -> bool:
    """Signal exactly this process; whether it was there to take it."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = _open_pidfd(process.pid)
        try:
            now = read_process(process.pid)
            if now is None or now.id != process or not now.alive:
                return False
            if descriptor is None:
                os.kill(process.pid, number)
            else:
                signal.pidfd_send_signal(descriptor, number)
            return True
        finally:
            if descriptor is not None:
                os.close(descriptor)
    return False


def _open_pidfd(pid: int) -> int | None:
    """A handle that stays with the process; None on kernels and sandboxes without pidfd."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


def _marks(directory: Path) -> dict[str, str]:
    """The variables of hangdrill that the process was started with; none when its environment cannot be read."""
    try:
        environ = (directory / "environ").read_bytes()
    except OSError:
        return {}
    if _MARK not in environ:
        return {}
    entries = (entry.decode(errors="replace") for entry in environ.split(b"\0") if entry.startswith(_MARK))
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def parse_id(text: str) -> ProcessId | None:
    """ "pid:ticks", as CONTROLLER_VARIABLE says it; None for anything else."""
    pid, _, ticks = text.partition(":")
    return ProcessId(int(pid), int(ticks)) if pid.isdecimal() and ticks.isdecimal() else None
