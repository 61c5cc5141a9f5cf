"""A container to start, as hangdrill says it, and the call of the Docker Engine API that makes it.

Every container bears labels: by them it is known as ours, and a killed controller's one is found again.
"""

import contextlib
import io
import os
import socket
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

__all__ = [
    "REPOSITORY",
    "RUN_LABEL",
    "ContainerOrder",
    "ContainerState",
    "ImageFacts",
    "controller_of",
    "create",
    "labels_of",
]

RUN_LABEL, CONTROLLER_LABEL, OWNER_LABEL = "hangdrill.run", "hangdrill.controller", "hangdrill.owner"
REPOSITORY = "hangdrill-root"
SHARED = ("/tmp", "/var/tmp")
"""Directories of an image that are there already, and everybody's."""


class ContainerOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A container to start. mounts: (source, target, read_only); devices as the engine writes them."""

    run_id: str
    controller: str
    command: tuple[str, ...]
    environ: dict[str, str]
    cwd: str
    user: str
    mounts: tuple[tuple[str, str, bool], ...]
    devices: tuple[str, ...] = ()
    tmpfs: tuple[tuple[str, int | None], ...] = ()
    """(target, size in bytes)."""
    memory_bytes: int | None = None
    image: str = ""
    """The user's, by its id; "" for the root directory that is imported for the run. Its entrypoint is not run."""
    own_dirs: tuple[str, ...] = ()
    """Of an image: directories to make in the container's own layer, for its user alone."""
    gpus: bool = False
    """Of an image: give it this host's GPUs, with their driver's libraries."""


class ContainerState(msgspec.Struct, frozen=True, kw_only=True):
    """pid: the init's, on this host, 0 once it is over. upper_dir: the own layer on this host, "" when not told."""

    running: bool
    exit_code: int
    pid: int
    upper_dir: str
    oom_killed: bool = False


class ImageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An image that the engine has. digest: of its repository, "repository@sha256:...", "" for one that has none."""

    id: str
    digest: str = ""
    environ: dict[str, str] = msgspec.field(default_factory=dict)


def create(client: "DockerClient", order: ContainerOrder) -> "Container":
    """Make the container, and do not start it yet."""
    from docker.types import DeviceRequest, Mount

    whole = list(order.command)
    container = client.containers.create(
        order.image or f"{REPOSITORY}:{order.run_id}",
        whole[1:] if order.image else whole,
        entrypoint=whole[:1] if order.image else None,
        name=f"hangdrill-{order.run_id}",
        labels=labels_of(order.run_id, order.controller),
        environment=order.environ,
        working_dir=order.cwd,
        user=order.user,
        mounts=[
            *(Mount(target, source, type="bind", read_only=read_only) for source, target, read_only in order.mounts),
            *(Mount(path, None, type="tmpfs", tmpfs_size=size, tmpfs_mode=0o1777) for path, size in order.tmpfs),
        ],
        mem_limit=order.memory_bytes,
        memswap_limit=order.memory_bytes,
        devices=list(order.devices),
        device_requests=[DeviceRequest(count=-1, capabilities=[["gpu"]])] if order.gpus else None,
        network_mode="host",
        shm_size="1g",
    )
    wanted = [path for path in order.own_dirs if path not in SHARED]
    if wanted:
        container.put_archive("/", _directories(wanted))
    return container


def labels_of(run_id: str, controller: str) -> dict[str, str]:
    """By which a container is known as ours. An engine may serve several users, and several hosts."""
    return {RUN_LABEL: run_id, CONTROLLER_LABEL: controller, OWNER_LABEL: _owner()}


def controller_of(labels: Mapping[str, str]) -> str:
    """The controller of a container, "" where its pid says nothing to us."""
    return labels.get(CONTROLLER_LABEL, "") if labels.get(OWNER_LABEL) == _owner() else ""


def _owner() -> str:
    """Among whom a pid means one process: this user's, in this pid namespace of this host."""
    machine = ""
    with contextlib.suppress(OSError):
        machine = Path("/etc/machine-id").read_text(encoding="ascii", errors="replace").strip()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    return f"{os.getuid()}@{socket.gethostname()}/{machine}/{namespace}"


def _directories(paths: Iterable[str]) -> bytes:
    """A tar file of directories that are this user's alone; their parents are made as need be."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(paths):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o700, os.getuid(), os.getgid()
            archive.addfile(entry)
    return buffer.getvalue()
