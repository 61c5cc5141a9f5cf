"""A drill's pod on this host: `podman play kube` with the reduced template, and its deletion, graceful or forced.

The image is a root directory of a few kilobytes that is imported for the run and removed with it, as for the container
launcher; the host's programs and the ranks' environment are mounted. An emptyDir is looked at where podman keeps it.
"""

import os
import select
import signal
import sys
from pathlib import Path

import msgspec

import hangdrill
from hangdrill.launchers.box import Box, Mount, box_of, check_volumes, find_mounted
from hangdrill.launchers.container import root_archive
from hangdrill.launchers.kubernetes_pod import COLLECTOR, RANKS, Document, PodOrder, pod_template
from hangdrill.launchers.kubernetes_reduction import empty_dirs_of, mounts_of, reduced
from hangdrill.launchers.podman import Podman
from hangdrill.launchers.protocol import LaunchedJob, LaunchRequest
from hangdrill.launchers.torchrun import TorchrunLauncher
from hangdrill.model.kubernetes import Kubernetes
from hangdrill.model.run import Leftover
from hangdrill.model.scenario import Teardown

__all__ = ["PodmanJob", "PodmanLauncher"]


class PodmanLauncher:
    """Wraps the torchrun launcher's command."""

    def __init__(self, settings: Kubernetes) -> None:
        self._settings = settings
        self._torchrun = TorchrunLauncher()

    def check(self, request: LaunchRequest) -> None:
        """MachineError when torch, a volume or podman is missing."""
        self._torchrun.check(request)
        check_volumes(request)
        Podman(request.environ).check()

    def command(self, request: LaunchRequest) -> tuple[str, ...]:
        """What runs in the ranks' container."""
        return self._torchrun.command(request)

    def start(self, request: LaunchRequest) -> LaunchedJob:
        """Import the root directory and play the pod; MachineError when podman refuses."""
        Path(request.log_path).touch(mode=0o600)
        for mount in _delivered_to(request):
            Path(mount.source).mkdir(mode=0o700, parents=True, exist_ok=True)
        pod, box = self.pod(request)
        podman = Podman(request.environ)
        podman.play(pod, root_archive(box), request.run_id)
        return PodmanJob(podman, self._settings, request.run_id, pod)

    def pod(self, request: LaunchRequest) -> tuple[Document, Box]:
        """The reduced pod, and the root directory that both containers start from."""
        ranks = box_of(request)
        collector = box_of(_collectors(request)) if request.collector else None
        template = pod_template(self._order(request))
        host = {RANKS: self._of_host(request, ranks)}
        if collector is not None:
            host[COLLECTOR] = (*self._of_host(request, collector), *_delivered_to(request))
        pod = reduced(template, run_id=request.run_id, host=host, log_path=request.log_path, directory=request.cwd)
        places = {mount.target: mount for name in host for mount in mounts_of(pod, name)}
        own = set(ranks.own_dirs) | {request.run_dir} | set(empty_dirs_of(pod, RANKS))
        own -= {path for path in own if find_mounted(places.values(), path) is not None}
        return pod, msgspec.structs.replace(ranks, mounts=tuple(places.values()), own_dirs=tuple(sorted(own)))

    def _order(self, request: LaunchRequest) -> PodOrder:
        """The run directory as it lies on this host."""
        settings = msgspec.structs.replace(
            self._settings,
            image=Podman.image(request.run_id),
            collector_image=None,
            run_volume="hostPath:/",
            mount_path="/",
        )
        return PodOrder(
            run_id=request.run_id,
            controller=request.environ.get("HANGDRILL_CONTROLLER", ""),
            settings=settings,
            command=self.command(request),
            collector=request.collector,
            environ=request.environ,
            collector_environ=_collectors(request).environ,
            uid=os.getuid(),
            gid=os.getgid(),
            run_dir=request.run_dir,
            volumes=request.volumes,
        )

    def _of_host(self, request: LaunchRequest, box: Box) -> tuple[Mount, ...]:
        """A box's mounts without those that the template has: the run directory's parts and the volumes."""
        others = {volume.target for volume in request.volumes} | set(self._settings.empty_dirs)
        return tuple(
            mount
            for mount in box.mounts
            if mount.target not in others and not Path(mount.target).is_relative_to(request.run_dir)
        )


class PodmanJob:
    """A pod, from its start until it is deleted. The job is over when its ranks' container is."""

    def __init__(self, podman: Podman, settings: Kubernetes, run_id: str, pod: Document) -> None:
        self._podman = podman
        self._settings = settings
        self._run_id = run_id
        self._mounts = mounts_of(pod, RANKS)
        self._empty_dirs = empty_dirs_of(pod, RANKS)
        facts = podman.container(run_id, RANKS)
        self._pid = facts.pid if facts is not None else 0
        self._upper_dir = facts.upper_dir if facts is not None else ""
        self._init = _open_pidfd(self._pid)
        self._exit_code: int | None = None

    def poll(self) -> int | None:
        """podman is asked only once the init is over: this is called often."""
        if self._exit_code is None and (self._init is None or _is_readable(self._init)):
            facts = self._podman.container(self._run_id, RANKS)
            if facts is None:
                self._exit_code = -int(signal.SIGKILL)
            elif not facts.running:
                self._exit_code = 128 - facts.exit_code if facts.exit_code > 128 else facts.exit_code
        return self._exit_code

    def signal(self, number: signal.Signals) -> None:
        self._podman.signal(self._run_id, RANKS, number)

    def pids(self) -> tuple[int, ...]:
        return (self._pid,) if self._pid else ()

    def close(self) -> None:
        """The pod stays, with its emptyDirs and layers, until it is removed."""
        if self._init is not None and self.poll() is not None:
            os.close(self._init)
            self._init = None

    def remove(self) -> None:
        """The pod and all that is its own."""
        self._podman.remove(self._run_id)
        self.close()

    def undergo(self, teardown: Teardown) -> None:
        """pod-deletion is its own; the controller does the others."""
        if teardown is not Teardown.POD_DELETION:
            return
        if self._settings.deletion == "graceful":
            self._podman.stop(self._run_id, self._settings.grace_s)
        else:
            self._podman.kill(self._run_id)
        self.remove()

    def locate(self, path: str) -> Path | None:
        """A hostPath, an emptyDir, or the container's own layer as podman keeps it."""
        for place, name in self._empty_dirs.items():
            if Path(path).is_relative_to(place):
                kept = self._podman.volume_path(name)
                return None if kept is None else Path(kept) / Path(path).relative_to(place)
        mounted = find_mounted(self._mounts, path)
        if mounted is not None:
            return mounted
        for root in (self._upper_dir, f"/proc/{self._pid}/root" if self.poll() is None else ""):
            if root and os.access(root, os.R_OK | os.X_OK):
                return Path(root) / path.lstrip("/")
        return None

    def leftovers(self) -> tuple[Leftover, ...]:
        """Pods, emptyDirs and images of this run."""
        return self._podman.leftovers(self._run_id)


def _collectors(request: LaunchRequest) -> LaunchRequest:
    """The same, for the collector: it runs with the controller's Python and hangdrill."""
    package_parent = str(Path(hangdrill.__file__).resolve().parent.parent)
    kept = {name: value for name, value in request.environ.items() if not name.startswith("HANGDRILL_")}
    return msgspec.structs.replace(
        request,
        python=sys.executable,
        target="workload:",
        volumes=(),
        environ={**kept, "PYTHONPATH": package_parent},
    )


def _delivered_to(request: LaunchRequest) -> tuple[Mount, ...]:
    """The directory of this host that the collector delivers to, if it does."""
    words = request.collector
    target = words[words.index("--deliver-to") + 1].removeprefix("file://") if "--deliver-to" in words else ""
    return (Mount(source=target, target=target, writable=True),) if target.startswith("/") else ()


def _open_pidfd(pid: int) -> int | None:
    """A handle that becomes readable when the process is over; None when it is over already."""
    try:
        return os.pidfd_open(pid) if pid else None
    except OSError:
        return None


def _is_readable(handle: int) -> bool:
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    return bool(poller.poll(0))
