"""The shared side: a thread of its own does everything that touches the run directory while the job runs.

A file server that hangs then stops this thread alone: the main thread sees no new beat of the controller, and ends the
job by its own deadline. What is carried: the agents' files, counts and reports, the log, and native dumps that torch
wrote outside the run directory go there; the controller's orders come from there.
"""

import contextlib
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hangdrill.drill.layout import RunLayout
from hangdrill.drill.node_files import ControllerOrders, read_in_place, write_in_place
from hangdrill.drill.plan_values import Plan
from hangdrill.model.run import NodeStatus
from hangdrill.node.place import LocalPlace, is_mine

__all__ = ["SharedSide"]

LOOK_S = 0.2
MOST_LOG_BYTES = 1 << 20
"""Of one look: a job that writes more is carried over several."""
_CARRIED = re.compile(r"rank_\d+\.a\d+\.(facts\.json|fault\.json|exit\.json|ops)")


class SharedSide:
    """`orders` is the controller's last word, `silent_s` how long it has said nothing, counted in this side's looks."""

    def __init__(
        self, plan: Plan, layout: RunLayout, place: LocalPlace, node: int, status: Callable[[int], NodeStatus]
    ) -> None:
        """status: what to tell at a given beat; called in this thread, and must look at this host alone."""
        self._layout = layout
        self._place = place
        self._node = node
        self._status = status
        self._ranks = plan.expected_ranks
        prefix = Path(plan.dump_prefix)
        self._own_prefix = None if prefix.is_relative_to(layout.root) else str(prefix)
        self._untold = "fault.json" if is_mine(plan, node) else ""
        """The ranks of a host with a fault of its own are held only until it is placed: no fault of theirs."""
        self._beat = 0
        self._carried: dict[str, tuple[int, int, int]] = {}
        self._ops: dict[str, bytes] = {}
        self._log_at = {place.job_log: 0, place.collector_log: 0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hangdrill-shared", daemon=True)
        self.orders = ControllerOrders()
        self.heard = 0
        """Grows with each new beat of the controller."""

    def start(self) -> None:
        """Begin to carry."""
        self._thread.start()

    @property
    def rounds(self) -> int:
        """How many times everything was carried."""
        return self._beat

    def finish(self, deadline_s: float) -> bool:
        """Carry a last time and stop; whether that was done within the deadline."""
        self._stop.set()
        self._thread.join(deadline_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            last = self._stop.is_set()  # asked before the round, so that the last round sees everything
            for step in (self._hear, self._carry_files, self._carry_logs, self._carry_native, self._tell):
                with contextlib.suppress(OSError):
                    step()
            if last:
                return
            self._stop.wait(LOOK_S)

    def _hear(self) -> None:
        found = read_in_place(self._layout.controller_beat, ControllerOrders)
        if found is not None and found.beat != self.orders.beat:
            self.orders = found
            self.heard += 1

    def _tell(self) -> None:
        self._beat += 1
        write_in_place(self._layout.node_status(self._node), self._status(self._beat))

    def _carry_files(self) -> None:
        for name in sorted(os.listdir(self._place.control)):  # noqa: PTH208 - names alone, at every look
            match = _CARRIED.fullmatch(name)
            if match is not None and match[1] != self._untold:
                carry = self._carry_counts if match[1] == "ops" else self._carry_file
                with contextlib.suppress(OSError):
                    carry(name)

    def _carry_file(self, name: str) -> None:
        source = self._place.control / name
        facts = source.stat()
        look = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        if self._carried.get(name) != look:
            _replace(self._layout.control / name, source.read_bytes(), written_ns=facts.st_mtime_ns)
            self._carried[name] = look

    def _carry_counts(self, name: str) -> None:
        """Written to through memory, so its time says nothing."""
        data = (self._place.control / name).read_bytes()
        if self._ops.get(name) != data:
            _replace(self._layout.control / name, data)
            self._ops[name] = data

    def _carry_logs(self) -> None:
        with self._layout.node_log(self._node).open("ab") as target:
            for path, at in self._log_at.items():
                with contextlib.suppress(FileNotFoundError), path.open("rb") as source:
                    source.seek(at)
                    data = source.read(MOST_LOG_BYTES)
                    target.write(data)
                    self._log_at[path] = at + len(data)

    def _carry_native(self) -> None:
        """What torch wrote on this host's own disk, as it stands; a copy goes when its original is gone."""
        if self._own_prefix is None:
            return
        copies = self._layout.node_native(self._node)
        for rank in self._ranks:
            source = Path(f"{self._own_prefix}{rank}")
            target = copies / source.name
            try:
                facts = source.stat()
            except FileNotFoundError:
                target.unlink(missing_ok=True)
                continue
            look = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
            if self._carried.get(str(source)) != look:
                copies.mkdir(mode=0o700, parents=True, exist_ok=True)
                temporary = target.with_name(f".{target.name}.tmp")
                shutil.copy2(source, temporary)
                temporary.replace(target)
                self._carried[str(source)] = look


def _replace(path: Path, data: bytes, *, written_ns: int | None = None) -> None:
    """written_ns: when the original was written. The copy is made as old as that by the shared side's own clock: what a
    rank's clock is ahead is told from its facts and their file's time (`collector.clocks`)."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        if written_ns is not None:
            then_ns = os.fstat(descriptor).st_mtime_ns - (time.time_ns() - written_ns)
            os.utime(descriptor, ns=(then_ns, then_ns))
    temporary.replace(path)
