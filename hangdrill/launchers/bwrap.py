"""torchrun inside bubblewrap: a light container that needs no daemon, no root and no image.

Its root is a tmpfs of its own, in which box.py's mounts are placed; its init is bwrap itself. When the init is gone the
kernel ends every process in it, and the tmpfs with all that was written there.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import msgspec

from hangdrill.launchers.box import Box, box_of, check_volumes, find_mounted
from hangdrill.launchers.memory import MemoryHandles
from hangdrill.launchers.process import LocalJob, start_local
from hangdrill.launchers.protocol import LaunchedJob, LaunchRequest
from hangdrill.launchers.torchrun import TorchrunLauncher
from hangdrill.model.errors import MachineError
from hangdrill.model.run import Leftover
from hangdrill.model.scenario import Teardown

__all__ = ["BwrapJob", "BwrapLauncher"]

PROGRAM = "bwrap"
TRIAL_DEADLINE_S = 30.0


class BwrapLauncher:
    """Wraps the torchrun launcher's command."""

    def __init__(self) -> None:
        self._torchrun = TorchrunLauncher()

    def check(self, request: LaunchRequest) -> None:
        """MachineError when torch, bwrap or the right to make namespaces is missing. Tries it with an empty program."""
        self._torchrun.check(request)
        if shutil.which(PROGRAM, path=request.environ.get("PATH")) is None:
            raise MachineError(
                "bubblewrap is not installed: there is no bwrap on the PATH",
                where="job.launcher",
                next_step="install it (apt-get install bubblewrap, dnf install bubblewrap)",
            )
        check_volumes(request)
        _try(request)

    def command(self, request: LaunchRequest) -> tuple[str, ...]:
        """The exact command."""
        return (PROGRAM, *_arguments(box_of(request), request.cwd), "--", *self._torchrun.command(request))

    def start(self, request: LaunchRequest) -> LaunchedJob:
        """Start it in a session of its own; MachineError when the system refuses."""
        local = start_local(
            self.command(request), environ=request.environ, cwd=request.run_dir, log_path=request.log_path
        )
        return BwrapJob(local, box_of(request))


class BwrapJob:
    """The outer bwrap's process is the job's; its only child is the container's init.

    An open handle on the container's root keeps its tmpfs readable until `close` or `remove`, also when the last
    process in it has ended: what torch wrote there is seen, and then seen to be gone.
    """

    def __init__(self, local: LocalJob, box: Box) -> None:
        self._local = local
        self._box = box
        self._memory = MemoryHandles(box.memory)
        self._root: int | None = None

    def poll(self) -> int | None:
        return self._local.poll()

    def signal(self, number: signal.Signals) -> None:
        self._local.signal(number)

    def pids(self) -> tuple[int, ...]:
        return self._local.pids()

    def close(self) -> None:
        """The job is over, and its layer goes with it."""
        self._local.close()
        self._memory.close()
        if self._root is not None:
            os.close(self._root)
            self._root = None

    def remove(self) -> None:
        """SIGKILL to the init: the kernel ends the rest, and the layer is gone."""
        for pid in self._inside()[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.close()

    def undergo(self, teardown: Teardown) -> None:
        """container-removal is its own; the controller does the others."""
        if teardown is Teardown.CONTAINER_REMOVAL:
            self.remove()

    def locate(self, path: str) -> Path | None:
        """A mount, or the own layer and its memory as long as they are there."""
        mounted = None if self._memory.holds(path) else find_mounted(self._box.mounts, path)
        if mounted is not None:
            return mounted
        if self._root is None:
            self._root = next(filter(None, map(_open_root, self._inside()[1:])), None)
        root = None if self._root is None else Path(f"/proc/self/fd/{self._root}")
        if self._memory.holds(path):
            return self._memory.find(path, root)
        return None if root is None else root / path.lstrip("/")

    def leftovers(self) -> tuple[Leftover, ...]:
        """A mount namespace cannot outlive its processes, and those are the supervisor's."""
        return ()

    def _inside(self) -> tuple[int, ...]:
        """The container's processes, its init first; none once the outer bwrap is over."""
        if self._local.poll() is not None:
            return ()
        children: dict[int, list[int]] = {}
        for pid, parent in _parents():
            children.setdefault(parent, []).append(pid)
        found: list[int] = []
        fresh = list(self._local.pids())
        while fresh:
            fresh = [child for pid in fresh for child in sorted(children.get(pid, ()))]
            found += fresh
        return tuple(found)


def _open_root(pid: int) -> int | None:
    """A handle on a process's root; None while bwrap has not yet started its program, or when we may not look."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        handle = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    found, host = os.fstat(handle), Path("/").stat()
    if name == PROGRAM or (found.st_dev, found.st_ino) == (host.st_dev, host.st_ino):
        os.close(handle)
        return None
    return handle


def _arguments(box: Box, cwd: str) -> tuple[str, ...]:
    words = ["--unshare-pid", "--unshare-ipc", "--proc", "/proc", "--dev", "/dev"]
    if Path("/sys").is_dir():
        words += ["--ro-bind", "/sys", "/sys"]
    for device in box.devices:
        words += ["--dev-bind-try", device, device]
    for path, target in box.links:
        words += ["--symlink", target, path]
    words += ["--perms", "1777", "--dir", "/tmp"]
    for mount in box.mounts:
        words += ["--bind" if mount.writable else "--ro-bind", mount.source, mount.target]
    for each in box.memory:
        size = () if each.size_bytes is None else ("--size", str(each.size_bytes))
        words += ["--perms", "0700", *size, "--tmpfs", each.target]
    for path in box.own_dirs:
        if path != "/tmp":
            words += ["--perms", "0700", "--dir", path]
    return (*words, "--chdir", cwd)


def _try(request: LaunchRequest) -> None:
    """The run directory is not there yet, so the trial does without what lies in it."""
    in_memory = tuple(volume for volume in request.volumes if volume.in_memory)
    box = box_of(msgspec.structs.replace(request, volumes=in_memory))
    mounts = tuple(mount for mount in box.mounts if not Path(mount.source).is_relative_to(request.run_dir))
    own = tuple(path for path in box.own_dirs if path != request.cwd)
    words = _arguments(msgspec.structs.replace(box, mounts=mounts, own_dirs=own), "/")
    trial = [PROGRAM, *words, "--", request.python, "-S", "-c", ""]
    try:
        subprocess.run(trial, env=request.environ, capture_output=True, timeout=TRIAL_DEADLINE_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or str(error).encode()
        last_line = (detail.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
        raise MachineError(
            f"bubblewrap cannot start the ranks' Python: {last_line}",
            where="job.launcher",
            next_step="a tmpfs with a size needs bubblewrap 0.7 or newer"
            if "--size" in last_line
            else "user namespaces may be forbidden: look at kernel.unprivileged_userns_clone, or at AppArmor",
        ) from error


def _parents() -> list[tuple[int, int]]:
    """(pid, parent) of every process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text(errors="replace")
            except OSError:
                continue
            found.append((int(entry.name), int(text.rpartition(")")[2].split()[1])))
    return found
