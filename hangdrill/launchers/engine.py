"""The few calls of the Docker Engine API that a container drill needs, through docker-py; podman answers them too.

DOCKER_HOST and its companions say which engine; without them the usual sockets are tried. Every call connects anew and
closes, so nothing stays open between them. Only what carries the run's label or tag is ever touched.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hangdrill.model.errors import MachineError
from hangdrill.model.run import Leftover

if TYPE_CHECKING:
    from docker import DockerClient

__all__ = ["ContainerOrder", "ContainerState", "Engine", "controller_of", "labels_of"]

RUN_LABEL, CONTROLLER_LABEL, OWNER_LABEL = "hangdrill.run", "hangdrill.controller", "hangdrill.owner"
REPOSITORY = "hangdrill-root"
CALL_DEADLINE_S = 60
KNOCK_DEADLINE_S = 10
HOST_VARIABLE = "DOCKER_HOST"


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


class ContainerState(msgspec.Struct, frozen=True, kw_only=True):
    """pid: the init's, on this host, 0 once it is over. upper_dir: the own layer on this host, "" when not told."""

    running: bool
    exit_code: int
    pid: int
    upper_dir: str
    oom_killed: bool = False


class Engine:
    """One engine, as the environment names it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        if HOST_VARIABLE not in self._environ:
            own = f"{environ.get('XDG_RUNTIME_DIR', f'/run/user/{os.getuid()}')}/podman/podman.sock"
            usual = ("/var/run/docker.sock", own, *(("/run/podman/podman.sock",) if os.getuid() == 0 else ()))
            there = next((path for path in usual if Path(path).is_socket()), usual[0])
            self._environ[HOST_VARIABLE] = f"unix://{there}"

    def check(self) -> None:
        """MachineError when docker-py is not installed or no engine answers."""
        with self._client() as client:
            client.ping()

    def _knock(self) -> None:
        """OSError when nobody listens: docker-py would leave a socket open on its way out."""
        address = self._environ[HOST_VARIABLE]
        if address.startswith("unix://"):
            with socket.socket(socket.AF_UNIX) as stream:
                stream.settimeout(KNOCK_DEADLINE_S)
                stream.connect(address.removeprefix("unix://"))

    def start(self, order: ContainerOrder, root: bytes) -> str:
        """Import the root directory as the run's own image, create the container and start it; its id.

        Whatever was made is removed again when that fails.
        """
        try:
            with self._client() as client:
                client.api.import_image_from_data(root, repository=f"{REPOSITORY}:{order.run_id}")
                return _start(client, order)
        except BaseException:
            with contextlib.suppress(MachineError):
                self.remove(order.run_id)
            raise

    def state(self, container: str) -> ContainerState | None:
        """None when there is no such container any more."""
        with self._client() as client:
            for found in client.containers.list(all=True, filters={"id": container}):
                told = found.attrs
                layers = (told.get("GraphDriver") or {}).get("Data") or {}
                return ContainerState(
                    running=bool(told["State"]["Running"]),
                    exit_code=int(told["State"]["ExitCode"]),
                    pid=int(told["State"]["Pid"]),
                    upper_dir=str(layers.get("UpperDir") or ""),
                    oom_killed=bool(told["State"].get("OOMKilled")),
                )
        return None

    def signal(self, container: str, number: signal.Signals) -> None:
        """To the container's init; nothing happens when it is over."""
        with self._client() as client:
            for found in client.containers.list(filters={"id": container}):
                with _unless_over(500):
                    found.kill(signal=int(number))

    def run_inside(self, container: str, command: Sequence[str], *, user: str) -> None:
        """Start a program beside the container's own, and leave it to itself; it ends with the container."""
        with self._client() as client:
            begun = client.api.exec_create(container, list(command), user=user, stdout=False, stderr=False)
            client.api.exec_start(begun["Id"], detach=True)

    def remove(self, run_id: str) -> None:
        """Kill and remove the run's containers, with their layers, and its image. Safe to repeat."""
        with self._client() as client:
            for found in client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={run_id}"}):
                with _unless_over(500):  # podman's word for a container that has ended
                    found.kill()
                with _unless_over():
                    found.remove(force=True, v=True)
            for image in client.images.list(name=f"{REPOSITORY}:{run_id}"):
                with _unless_over():
                    client.images.remove(image.id, force=True)

    def leftovers(self, run_id: str) -> tuple[Leftover, ...]:
        """What is there of a run."""
        return tuple(Leftover(what="container", name=name) for run, name, _ in self.runs() if run == run_id)

    def answers(self) -> bool:
        """Whether there is an engine at all; quick when there is none."""
        try:
            self._knock()
            self.check()
        except (MachineError, OSError):
            return False
        return True

    def runs(self) -> list[tuple[str, str, str]]:
        """(run id, name, controller) of every container and image that drills made; an image tells no controller, and
        neither does a container of another user, host or pid namespace: nobody here can tell whether that one lives."""
        with self._client() as client:
            containers = client.containers.list(all=True, filters={"label": RUN_LABEL})
            images = client.images.list(name=REPOSITORY)
            tags = [tag for image in images for tag in image.tags if tag.split("/")[-1].startswith(f"{REPOSITORY}:")]
            return [
                *((found.labels[RUN_LABEL], found.name, controller_of(found.labels)) for found in containers),
                *((tag.rpartition(":")[2], tag, "") for tag in tags),
            ]

    @contextlib.contextmanager
    def _client(self) -> "Iterator[DockerClient]":
        try:
            import docker
        except ImportError as error:
            raise MachineError(
                "docker-py is not installed, so no container engine can be asked",
                where="job.launcher",
                next_step='pip install "hangdrill[docker]", or use launcher = "bwrap"',
            ) from error
        try:
            self._knock()
            client = docker.DockerClient.from_env(environment=self._environ, timeout=CALL_DEADLINE_S)
            try:
                yield client
            finally:
                client.close()
        except (docker.errors.DockerException, OSError) as error:
            silent = isinstance(error, FileNotFoundError | ConnectionRefusedError)
            what = "no container engine listens there" if silent else "the container engine refuses"
            raise MachineError(
                f"{what}: {_last_words(error)}",
                where=self._environ[HOST_VARIABLE],
                next_step="start Docker or podman's socket, name it with DOCKER_HOST, and check that you may use it",
            ) from error


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


def _start(client: "DockerClient", order: ContainerOrder) -> str:
    from docker.types import Mount

    container = client.containers.create(
        f"{REPOSITORY}:{order.run_id}",
        list(order.command),
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
        network_mode="host",
        shm_size="1g",
    )
    container.start()
    return str(container.id)


@contextlib.contextmanager
def _unless_over(*also: int) -> Iterator[None]:
    """It ended or was removed meanwhile (404, 409), and that is what was wanted. What really failed shows as left."""
    from docker.errors import APIError

    try:
        yield
    except APIError as error:
        if error.status_code not in (404, 409, *also):
            raise


def _last_words(error: Exception) -> str:
    explanation: Sequence[str] | str = getattr(error, "explanation", None) or str(error)
    return (str(explanation).strip().splitlines() or [type(error).__name__])[-1]
