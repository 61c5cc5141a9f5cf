"""The few commands of the program `podman` that a pod on this host needs. No cluster, and no podman service.

Only what carries the run's label, tag or name is ever touched.
"""

import contextlib
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hangdrill.launchers.kubernetes_manifest import job_name
from hangdrill.launchers.kubernetes_pod import COLLECTOR, CONTROLLER_LABEL, RANKS, RUN_LABEL, Document
from hangdrill.model.errors import MachineError
from hangdrill.model.run import Leftover

__all__ = ["ContainerFacts", "Podman"]

PROGRAM = "podman"
REPOSITORY = "localhost/hangdrill-root"
CALL_DEADLINE_S = 120.0
CGROUPS = Path("/sys/fs/cgroup")


class ContainerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """pid: the init's, on this host, 0 once it is over. upper_dir: the own layer on this host, "" when not told."""

    running: bool
    exit_code: int
    pid: int
    upper_dir: str


class Podman:
    """podman as the environment configures it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)

    def is_there(self) -> bool:
        """Whether it is installed."""
        return shutil.which(PROGRAM, path=self._environ.get("PATH")) is not None

    def check(self) -> None:
        """MachineError when podman is missing or does not work here."""
        if not self.is_there():
            raise MachineError(
                "podman is not installed: there is no podman on the PATH",
                where="job.kubernetes.engine",
                next_step="install it (apt-get install podman catatonit), or name a cluster",
            )
        self._call("pod", "ps", "--quiet")

    def answers(self) -> bool:
        """Whether it is installed and works here."""
        try:
            self.check()
        except MachineError:
            return False
        return True

    def play(self, pod: Document, root: bytes, run_id: str) -> None:
        """Import the root directory as the run's own image and start the pod. All is removed if that fails."""
        try:
            self._call("import", "-", self.image(run_id), given=root)
            self._call("play", "kube", "-", given=json.dumps(pod).encode())
        except BaseException:
            with contextlib.suppress(MachineError):
                self.remove(run_id)
            raise

    @staticmethod
    def image(run_id: str) -> str:
        """The image of a run: a root directory of some kilobytes."""
        return f"{REPOSITORY}:{run_id}"

    def container(self, run_id: str, name: str) -> ContainerFacts | None:
        """None when there is no such container any more."""
        where = f"name=^{job_name(run_id)}-{name}$"
        if not self._call("ps", "--all", "--quiet", "--filter", where).strip():
            return None
        with contextlib.suppress(MachineError):  # removed between the two calls
            told = json.loads(self._call("container", "inspect", f"{job_name(run_id)}-{name}"))[0]
            layers = (told.get("GraphDriver") or {}).get("Data") or {}
            return ContainerFacts(
                running=bool(told["State"]["Running"]),
                exit_code=int(told["State"]["ExitCode"]),
                pid=int(told["State"]["Pid"]),
                upper_dir=str(layers.get("UpperDir") or ""),
            )
        return None

    def signal(self, run_id: str, name: str, number: signal.Signals) -> None:
        """To a container's init; nothing happens when it is over."""
        with contextlib.suppress(MachineError):
            self._call("kill", "--signal", number.name, f"{job_name(run_id)}-{name}")

    def stop(self, run_id: str, grace_s: int) -> None:
        """As a cluster ends a pod: TERM to the ranks, and to the collector once they are over; KILL after `grace_s`.

        `podman pod stop` would also end the pause process, the pod's init, and with it everything at once by KILL. So
        would `podman stop` of the collector now and then: the ranks' cleanup, which podman does in the background,
        takes a container that is "stopping" for one that is over, and ends the pause process after the last one.
        """
        until_s = time.monotonic() + grace_s
        ranks, collector = (f"{job_name(run_id)}-{name}" for name in (RANKS, COLLECTOR))
        self._call("stop", "--ignore", "--time", str(grace_s), ranks, deadline_s=grace_s + CALL_DEADLINE_S)
        self.signal(run_id, COLLECTOR, signal.SIGTERM)
        with contextlib.suppress(MachineError):  # too late, or there is none
            self._call("wait", collector, deadline_s=max(0.1, until_s - time.monotonic()))
        self._call("stop", "--ignore", "--time", "0", collector)

    def kill(self, run_id: str) -> None:
        """KILL to every container of the pod."""
        if any(name == job_name(run_id) for _, name, _ in self.pods()):
            self._call("pod", "kill", job_name(run_id))

    def remove(self, run_id: str) -> None:
        """The pod with its containers and layers, its emptyDirs, and the run's image. Safe to repeat."""
        cgroup = self._cgroup(run_id)
        self._call("pod", "rm", "--force", "--ignore", "--time", "0", job_name(run_id))
        _sweep_cgroup(cgroup)
        for volume in self.volumes(run_id):
            self._call("volume", "rm", "--force", volume)
        if self._call("image", "ls", "--quiet", self.image(run_id)).strip():
            self._call("image", "rm", "--force", self.image(run_id))

    def volumes(self, run_id: str) -> tuple[str, ...]:
        """The pod's emptyDirs."""
        names = self._call("volume", "ls", "--quiet").split()
        return tuple(name for name in names if name.startswith(f"{job_name(run_id)}-"))

    def volume_path(self, name: str) -> str | None:
        """Where this host has an emptyDir; None when it is gone."""
        if name not in self._call("volume", "ls", "--quiet").split():
            return None
        return str(self._list("volume", "inspect", name)[0]["Mountpoint"])

    def pods(self) -> tuple[tuple[str, str, str], ...]:
        """(run id, name, controller) of every pod that drills made."""
        found = self._list("pod", "ps", "--filter", f"label={RUN_LABEL}", "--format", "json")
        return tuple(
            (
                pod["Labels"][RUN_LABEL],
                pod["Name"],
                pod["Labels"].get(CONTROLLER_LABEL, "").replace(".", ":"),
            )
            for pod in found
        )

    def runs(self) -> tuple[tuple[str, str, str], ...]:
        """The same, and every image of a run; an image tells no controller."""
        listed = self._call(
            "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "--filter", f"reference={REPOSITORY}"
        )
        return (*self.pods(), *((tag.rpartition(":")[2], tag, "") for tag in listed.split()))

    def leftovers(self, run_id: str) -> tuple[Leftover, ...]:
        """What is there of a run."""
        pods = [name for run, name, _ in self.pods() if run == run_id]
        images = [self.image(run_id)] if self._call("image", "ls", "--quiet", self.image(run_id)).strip() else []
        return tuple(Leftover(what="container", name=name) for name in (*pods, *self.volumes(run_id), *images))

    def _cgroup(self, run_id: str) -> str:
        """The pod's, as a path below the cgroup file systems; "" when there is no pod."""
        if not any(name == job_name(run_id) for _, name, _ in self.pods()):
            return ""
        told = json.loads(self._call("pod", "inspect", job_name(run_id)))
        return str((told[0] if isinstance(told, list) else told).get("CgroupPath") or "")

    def _list(self, *words: str) -> list[Any]:
        return list(json.loads(self._call(*words) or "[]") or ())

    def _call(self, *words: str, given: bytes = b"", deadline_s: float = CALL_DEADLINE_S) -> str:
        try:
            done = subprocess.run(
                [PROGRAM, *words],
                input=given,
                env=self._environ,
                capture_output=True,
                timeout=deadline_s,
                check=True,
                start_new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            told = getattr(error, "stderr", None) or str(error).encode()
            raise MachineError(
                f"podman refuses: {_last_words(told) or type(error).__name__}",
                where=f"podman {' '.join(words[:2])}",
                next_step="run `podman info` as this user, and look at containers.conf and storage.conf",
            ) from error
        return done.stdout.decode(errors="replace")


def _last_words(told: bytes) -> str:
    """The last lines: the very last one of `play kube` only counts, those before it say why."""
    lines = [" ".join(line.split()) for line in told.decode(errors="replace").splitlines()]
    return "; ".join([line for line in lines if line][-3:])[-600:]


def _sweep_cgroup(path: str) -> None:
    """podman 4.3 leaves the pod's empty cgroup in the unified hierarchy of a host that has both versions."""
    if not path.strip("/"):
        return
    for place in (*CGROUPS.glob(path.lstrip("/")), *CGROUPS.glob(f"*/{path.lstrip('/')}")):
        for each in (*place.glob("libpod-*"), place):
            with contextlib.suppress(OSError):  # a cgroup that is in use is not empty
                each.rmdir()
