"""The guard of a node process: when that one is gone without a word, it undoes what was done to the host's network,
ends every process that was started there, and removes the host's directory.

It hears of the end by its pipe, so no signal and no crash can keep it back. It has left the node process's family and
carries no mark of the run: whoever ends the run does not end it before its work is done.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from hangdrill.drill.node_files import ControllerOrders, read_in_place
from hangdrill.drill.procfs import ProcessId
from hangdrill.drill.supervise import Grace, Supervisor
from hangdrill.model.errors import MachineError
from hangdrill.node.place import LocalPlace, remove_place

__all__ = ["Charge", "Guard", "Undo", "start_guard"]

UNDO_DEADLINE_S = 10.0
START_DEADLINE_S = 30.0
LOOK_S = 0.5
_MARK = "HANGDRILL_"


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """A command that takes back a change. until_end_s: a host that is to look dead keeps the change until the
    controller ends the job, and at most so long."""

    command: tuple[str, ...]
    until_end_s: float = 0.0


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """What is guarded."""

    run_id: str
    node: int
    owner: ProcessId
    local_root: str
    controller_beat: str


class Guard:
    """The node process's end of the pipe."""

    def __init__(self, write_end: int) -> None:
        self._write_end = write_end

    def remember(self, undo: Undo) -> None:
        """Before the change is made: the guard takes it back if nobody else does. MachineError when it is gone."""
        if not self._say({"undo": msgspec.to_builtins(undo)}):
            raise MachineError(
                "the guard of this host was killed, so nobody would give the network back",
                where="fault.kind",
                next_step="nothing was changed: see who kills processes here, and run the drill again",
            )

    def forget(self) -> None:
        """All changes were taken back."""
        self._say({"forget": True})

    def dismiss(self) -> None:
        """Everything is ended and removed; safe to repeat."""
        if self._write_end >= 0:
            self._say({"done": True})
            os.close(self._write_end)
            self._write_end = -1

    def _say(self, word: dict[str, object]) -> bool:
        """Whether it is there to hear it."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write_end, json.dumps(word).encode() + b"\n")
            return True
        return False


def start_guard(charge: Charge) -> Guard:
    """Start it; it is there when this returns."""
    read_end, write_end = os.pipe()
    environ = {key: value for key, value in os.environ.items() if not key.startswith(_MARK)}
    try:
        subprocess.run(
            [sys.executable, "-m", "hangdrill.node.guard", msgspec.json.encode(charge).decode()],
            stdin=read_end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environ,
            cwd="/",
            start_new_session=True,
            timeout=START_DEADLINE_S,
            check=True,
        )
    finally:
        os.close(read_end)
    return Guard(write_end)


def main(arguments: list[str]) -> int:
    """Leave the family, listen, and do what is left to do."""
    charge = msgspec.json.decode(arguments[0], type=Charge)
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    undoes = _listen()
    if undoes is None:
        return 0
    supervisor = Supervisor(charge.run_id, charge.owner, node=charge.node)
    supervisor.kill(Grace())
    for undo in reversed(undoes):
        if undo.until_end_s:
            _wait_for_the_end(Path(charge.controller_beat), undo.until_end_s)
        run_undo(undo)
    remove_place(LocalPlace(Path(charge.local_root)))
    return 0


def run_undo(undo: Undo) -> bool:
    """Whether it worked."""
    try:
        done = subprocess.run(undo.command, capture_output=True, timeout=UNDO_DEADLINE_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _listen() -> list[Undo] | None:
    """The changes that stand when the owner is gone; None when it has ended everything itself."""
    undoes: list[Undo] = []
    for line in sys.stdin.buffer:
        word = json.loads(line)
        if "undo" in word:
            undoes.append(msgspec.convert(word["undo"], Undo))
        elif "forget" in word:
            undoes.clear()
        elif "done" in word:
            return None
    return undoes


def _wait_for_the_end(controller_beat: Path, deadline_s: float) -> None:
    """Until the controller ends the job. The file may be on a server that this very change has cut off."""
    ends_s = time.monotonic() + deadline_s
    while time.monotonic() < ends_s:
        orders = read_in_place(controller_beat, ControllerOrders)
        if orders is None or orders.end:
            return
        select.select([], [], [], LOOK_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
