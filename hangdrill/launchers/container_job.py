"""A container of an engine, from its start until it is removed: polled through its init, ended, and looked into."""

import os
import select
import signal
import time
from pathlib import Path

from hangdrill.launchers.box import Box, find_mounted
from hangdrill.launchers.engine import ContainerOrder, ContainerState, Engine
from hangdrill.launchers.memory import MemoryHandles
from hangdrill.launchers.oom import MemoryGroup, hog_command, watch
from hangdrill.model.errors import MachineError
from hangdrill.model.run import Leftover, MemoryFacts
from hangdrill.model.scenario import Teardown

__all__ = ["ContainerJob", "start_container"]

OOM_DEADLINE_S, STATE_DEADLINE_S, STATE_POLL_S = 60.0, 10.0, 0.05
NO_LIMIT_BYTES = 1 << 60
"""The kernel writes a limit that is none as a huge number."""


def start_container(
    engine: Engine, order: ContainerOrder, box: Box, *, python: str, root: bytes = b""
) -> "ContainerJob":
    """Create and start it; MachineError when the engine refuses, and then nothing is left. root: for an order without
    an image."""
    container = engine.start(order, root)
    try:
        return ContainerJob(engine, container, run_id=order.run_id, python=python, box=box)
    except MachineError:
        engine.remove(order.run_id)
        raise


class ContainerJob:
    """One container. python: the ranks', as the container names it."""

    def __init__(self, engine: Engine, container: str, *, run_id: str, python: str, box: Box) -> None:
        self._engine = engine
        self._container = container
        self._run_id = run_id
        self._python = python
        self.memory: MemoryFacts | None = None
        """What the teardown oom-kill saw."""
        self._box = box
        self._memory = MemoryHandles(box.memory)
        state = engine.state(container)
        self._pid = state.pid if state is not None else 0
        self._upper_dir = state.upper_dir if state is not None else ""
        self._init = _open_pidfd(self._pid)
        self._exit_code: int | None = None

    def poll(self) -> int | None:
        """The engine is asked only once the init is over: this is called often."""
        if self._exit_code is None and (self._init is None or _is_readable(self._init)):
            state = self._engine.state(self._container)
            if state is None:
                self._exit_code = -int(signal.SIGKILL)
            elif not state.running:
                self._exit_code = 128 - state.exit_code if state.exit_code > 128 else state.exit_code
        return self._exit_code

    def wait(self, deadline_s: float) -> int | None:
        """Its exit code; None when it still runs at the deadline. For short programs: nobody can interrupt it."""
        until_s = time.monotonic() + deadline_s
        while (code := self.poll()) is None and (left_s := until_s - time.monotonic()) > 0:
            if self._init is None or _is_readable(self._init, left_s):
                time.sleep(STATE_POLL_S)  # the engine hears of the end a moment after the kernel
        return code

    def signal(self, number: signal.Signals) -> None:
        self._engine.signal(self._container, number)

    def pids(self) -> tuple[int, ...]:
        return (self._pid,) if self._pid else ()

    def close(self) -> None:
        """The ended container stays, with its layer, until it is removed; its memory goes."""
        if self.poll() is not None:
            self._memory.close()
        if self._init is not None and self.poll() is not None:
            os.close(self._init)
            self._init = None

    def remove(self) -> None:
        """kill and rm -f; the run's image too."""
        self._engine.remove(self._run_id)
        self._memory.close()
        self.close()

    def undergo(self, teardown: Teardown) -> None:
        """container-removal and oom-kill are its own; the controller does the others."""
        if teardown is Teardown.OOM_KILL:
            self.memory = self._run_out_of_memory()
        if teardown in (Teardown.CONTAINER_REMOVAL, Teardown.OOM_KILL):
            self.remove()

    def _run_out_of_memory(self) -> MemoryFacts:
        """Until the kernel has ended the container. What is not seen to happen is not claimed."""
        group = MemoryGroup(self._pid)
        limit_bytes = group.limit_bytes()
        if self.poll() is not None or self._init is None or limit_bytes is None or limit_bytes >= NO_LIMIT_BYTES:
            return MemoryFacts(limit_bytes=limit_bytes, container_over=self.poll() is not None)
        group.offer(self._pid)
        user = f"{os.getuid()}:{os.getgid()}"
        self._engine.run_inside(self._container, hog_command(self._python, limit_bytes), user=user)
        init = self._init
        toll = watch(group, self._pid, lambda wait_s: _is_readable(init, wait_s), deadline_s=OOM_DEADLINE_S)
        state = self._ended_state()
        return MemoryFacts(
            limit_bytes=limit_bytes,
            kills=toll.kills,
            kills_of_job=toll.of_job,
            oom_killed=None if state is None else state.oom_killed,
            exit_code=None if state is None else state.exit_code,
            container_over=self.poll() is not None,
        )

    def _ended_state(self) -> ContainerState | None:
        """The engine hears of the end a moment after the kernel."""
        until_s = time.monotonic() + STATE_DEADLINE_S
        while (state := self._engine.state(self._container)) is not None and state.running:
            if time.monotonic() > until_s:
                return None
            time.sleep(STATE_POLL_S)
        return state

    def locate(self, path: str) -> Path | None:
        """A mount, or the own layer as the engine keeps it; else through the init's /proc, while it lives."""
        root = f"/proc/{self._pid}/root" if self.poll() is None else ""
        if self._memory.holds(path):
            return self._memory.find(path, Path(root) if root else None)
        mounted = find_mounted(self._box.mounts, path)
        if mounted is not None:
            return mounted
        for place in (self._upper_dir, root):
            if place and os.access(place, os.R_OK | os.X_OK):
                return Path(place) / path.lstrip("/")
        return None

    def leftovers(self) -> tuple[Leftover, ...]:
        """Containers and images of this run."""
        return self._engine.leftovers(self._run_id)


def _open_pidfd(pid: int) -> int | None:
    """A handle that becomes readable when the process is over; None when it is over already, or none of this host's."""
    try:
        return os.pidfd_open(pid) if pid else None
    except OSError:
        return None


def _is_readable(handle: int, wait_s: float = 0) -> bool:
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    return bool(poller.poll(wait_s * 1000))
