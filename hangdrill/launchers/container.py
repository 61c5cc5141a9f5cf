"""torchrun in a container of an engine with Docker's API (Docker, podman): in an image of the user's, or in none.

Without an image the root is a directory of a few kilobytes that is imported for the run and removed with it: empty
directories, and links as on this host. box.py's mounts bring the host's programs and the ranks' environment into it.
"""

import io
import os
import tarfile
from pathlib import Path, PurePosixPath

import msgspec

from hangdrill.launchers.box import Box, Mount, box_of, check_volumes, image_box
from hangdrill.launchers.container_job import ContainerJob, start_container
from hangdrill.launchers.engine import ContainerOrder, Engine
from hangdrill.launchers.image import ImageTask, check_image, start_in_image
from hangdrill.launchers.protocol import LaunchedJob, LaunchRequest
from hangdrill.launchers.torchrun import TorchrunLauncher

__all__ = ["ContainerJob", "ContainerLauncher", "root_archive"]

_INTO_THE_LOG = 'exec "$@" >>"$0" 2>&1'
_EMPTY = ("dev", "proc", "run", "sys")
_WHICH_GPUS = "CUDA_VISIBLE_DEVICES"


class ContainerLauncher:
    """Wraps the torchrun launcher's command."""

    def __init__(self) -> None:
        self._torchrun = TorchrunLauncher()

    def check(self, request: LaunchRequest) -> None:
        """MachineError when torch, a volume, docker-py, an engine that answers, or the image is missing."""
        if request.image:
            check_volumes(request)
            Engine(request.environ).check()
            check_image(Engine(request.environ), self._trial(request))
            return
        self._torchrun.check(request)
        check_volumes(request)
        Engine(request.environ).check()

    def command(self, request: LaunchRequest) -> tuple[str, ...]:
        """What runs in the container."""
        return ("/bin/sh", "-c", _INTO_THE_LOG, request.log_path, *self._torchrun.command(request))

    def start(self, request: LaunchRequest) -> LaunchedJob:
        """Create and start the container; MachineError when the engine refuses."""
        Path(request.log_path).touch(mode=0o600)
        if request.image:
            return start_in_image(Engine(request.environ), self._task(request))
        box = box_of(request)
        order = ContainerOrder(
            run_id=request.run_id,
            controller=request.environ.get("HANGDRILL_CONTROLLER", ""),
            command=self.command(request),
            environ=request.environ,
            cwd=request.cwd,
            user=f"{os.getuid()}:{os.getgid()}",
            mounts=tuple((mount.source, mount.target, not mount.writable) for mount in _with_log(box, request)),
            devices=tuple(f"{path}:{path}:rwm" for path in box.devices),
            tmpfs=tuple((each.target, each.size_bytes) for each in box.memory),
            memory_bytes=request.memory_bytes,
        )
        root = root_archive(box)
        return start_container(Engine(request.environ), order, box, python=request.python, root=root)

    def _task(self, request: LaunchRequest) -> ImageTask:
        """The job in its image: of this host's variables it gets none but the choice of GPUs."""
        chosen = {_WHICH_GPUS: request.environ[_WHICH_GPUS]} if request.gpus and _WHICH_GPUS in request.environ else {}
        box = image_box(request)
        return ImageTask(
            image=request.image,
            run_id=request.run_id,
            controller=request.environ.get("HANGDRILL_CONTROLLER", ""),
            command=self.command(request),
            python=request.python,
            environ={**chosen, **request.set_environ},
            cwd=request.cwd,
            box=msgspec.structs.replace(box, mounts=_with_log(box, request)),
            memory_bytes=request.memory_bytes,
            gpus=request.gpus,
        )

    def _trial(self, request: LaunchRequest) -> ImageTask:
        """The same before there is a run directory: with what is mounted from elsewhere."""
        task = self._task(request)
        mounts = tuple(each for each in task.box.mounts if not Path(each.source).is_relative_to(request.run_dir))
        box = msgspec.structs.replace(task.box, mounts=mounts, own_dirs=())
        return msgspec.structs.replace(task, box=box, cwd="/", memory_bytes=None)


def _with_log(box: Box, request: LaunchRequest) -> tuple[Mount, ...]:
    return (*box.mounts, Mount(source=request.log_path, target=request.log_path, writable=True))


def root_archive(box: Box) -> bytes:
    """A tar file of the root directory: the box's links, its own directories, and a place for every mount."""
    uid, gid = os.getuid(), os.getgid()
    directories = {f"/{name}": (0o755, 0) for name in _EMPTY}
    for mount in box.mounts:
        place = mount.target if Path(mount.source).is_dir() else str(PurePosixPath(mount.target).parent)
        directories.setdefault(place, (0o755, 0))
    directories |= {path: (0o1777 if path in ("/tmp", "/var/tmp") else 0o700, uid) for path in box.own_dirs}
    for path in tuple(directories):
        for parent in PurePosixPath(path).parents:
            directories.setdefault(str(parent), (0o755, 0))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, (mode, owner) in sorted(directories.items()):
            if path == "/":
                continue
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, mode, owner, gid if owner else 0
            archive.addfile(entry)
        for path, target in box.links:
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return buffer.getvalue()
