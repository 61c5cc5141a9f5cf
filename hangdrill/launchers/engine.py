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

from hangdrill.launchers.container_order import (
    REPOSITORY,
    RUN_LABEL,
    ContainerOrder,
    ContainerState,
    ImageFacts,
    controller_of,
    create,
    labels_of,
)
from hangdrill.model.errors import MachineError
from hangdrill.model.run import Leftover

if TYPE_CHECKING:
    from docker import DockerClient

__all__ = ["ContainerOrder", "ContainerState", "Engine", "ImageFacts", "controller_of", "labels_of"]

CALL_DEADLINE_S = 60
KNOCK_DEADLINE_S = 10
HOST_VARIABLE = "DOCKER_HOST"


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

    def image(self, name: str) -> ImageFacts | None:
        """The image of that name or id; None when the engine has none. Nothing is pulled."""
        with self._client() as client:
            from docker.errors import NotFound

            try:
                found = client.images.get(name)
            except NotFound:
                return None
            digests = sorted(found.attrs.get("RepoDigests") or ())
            own = [digest for digest in digests if digest.partition("@")[0] == _repository(name)]
            variables = (found.attrs.get("Config") or {}).get("Env") or ()
            return ImageFacts(
                id=str(found.id),
                digest=next(iter([*own, *digests]), ""),
                environ={key: value for key, _, value in (text.partition("=") for text in variables)},
            )

    def start(self, order: ContainerOrder, root: bytes = b"") -> str:
        """Create the container of the order's image and start it; its id. Without an image of the user's, the root
        directory is imported as the run's own first.

        Whatever was made is removed again when that fails.
        """
        try:
            with self._client() as client:
                if not order.image:
                    client.api.import_image_from_data(root, repository=f"{REPOSITORY}:{order.run_id}")
                container = create(client, order)
                container.start()
                return str(container.id)
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


@contextlib.contextmanager
def _unless_over(*also: int) -> Iterator[None]:
    """It ended or was removed meanwhile (404, 409), and that is what was wanted. What really failed shows as left."""
    from docker.errors import APIError

    try:
        yield
    except APIError as error:
        if error.status_code not in (404, 409, *also):
            raise


def _repository(name: str) -> str:
    """ "host:5000/train" of "host:5000/train:2.15"."""
    head, slash, last = name.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def _last_words(error: Exception) -> str:
    explanation: Sequence[str] | str = getattr(error, "explanation", None) or str(error)
    return (str(explanation).strip().splitlines() or [type(error).__name__])[-1]
