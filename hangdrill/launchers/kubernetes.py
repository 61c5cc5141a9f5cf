"""A job in pods: one pod on this host with `podman play kube`, or a JobSet or Indexed Job in a cluster.

Both are made of the same pod template (kubernetes_pod.py). Without `[job.kubernetes]` it is podman: nothing is ever
applied to a cluster whose context the user has not named.
"""

import os

from hangdrill.launchers.kubernetes_cluster import Cluster
from hangdrill.launchers.kubernetes_job import ClusterJob, bring_agent
from hangdrill.launchers.kubernetes_manifest import STORE_PORT, documents, first_pod_host
from hangdrill.launchers.kubernetes_pod import Document, PodOrder
from hangdrill.launchers.kubernetes_podman import PodmanLauncher
from hangdrill.launchers.protocol import LaunchedJob, Launcher, LaunchRequest
from hangdrill.model.errors import UsageError
from hangdrill.model.kubernetes import Kubernetes

__all__ = ["ClusterLauncher", "cluster_order", "kubernetes_launcher"]


def kubernetes_launcher(settings: Kubernetes) -> Launcher:
    """The one that `job.kubernetes.engine` names."""
    return PodmanLauncher(settings) if settings.engine == "podman" else ClusterLauncher(settings)


class ClusterLauncher:
    """Applies the documents with the official client. Tried against an API server of the tests only."""

    def __init__(self, settings: Kubernetes) -> None:
        self._settings = settings

    def check(self, request: LaunchRequest) -> None:
        """UsageError for settings that no cluster can take, MachineError when the named context does not answer."""
        if request.nnodes > 1:
            raise UsageError(
                f"a drill runs in one pod so far, and the scenario asks for {request.nnodes}",
                where="job.nnodes",
                next_step="set nnodes = 1; `hangdrill manifest` prints what several pods would be",
            )
        documents(cluster_order(request, self._settings), request.nnodes)
        Cluster(self._settings, request.environ).check()

    def command(self, request: LaunchRequest) -> tuple[str, ...]:
        """What runs in every pod."""
        return _torchrun(request, self._settings)

    def start(self, request: LaunchRequest) -> LaunchedJob:
        """Apply; MachineError when the cluster refuses."""
        made = documents(cluster_order(request, self._settings), request.nnodes)
        cluster = Cluster(self._settings, request.environ)
        bring_agent(request.run_dir)
        cluster.apply(made, request.run_id)
        return ClusterJob(cluster, self._settings, request)

    def manifest(self, request: LaunchRequest) -> tuple[Document, ...]:
        """What `start` would apply."""
        return documents(cluster_order(request, self._settings), request.nnodes)


def cluster_order(request: LaunchRequest, settings: Kubernetes) -> PodOrder:
    """The images bring Python and torch; the rank agent comes along in the run directory, as a copy."""
    environ = {**request.set_environ, "PYTHONPATH": f"{request.run_dir}/agent"}
    if request.nnodes > 1 and environ.get("GLOO_SOCKET_IFNAME") == "lo":
        del environ["GLOO_SOCKET_IFNAME"]
    return PodOrder(
        run_id=request.run_id,
        controller=request.set_environ.get("HANGDRILL_CONTROLLER", ""),
        settings=settings,
        command=_torchrun(request, settings),
        collector=request.collector,
        environ=environ,
        uid=os.getuid(),
        gid=os.getgid(),
        run_dir=request.run_dir,
        volumes=request.volumes,
    )


def _torchrun(request: LaunchRequest, settings: Kubernetes) -> tuple[str, ...]:
    """In one pod as on one host. In several, the first pod hosts the store, and a pod's index is its node's rank."""
    alone = (
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", request.run_id),
        *("--local-addr", "127.0.0.1"),
    )
    together = (
        "--node-rank",
        "$(JOB_COMPLETION_INDEX)",
        "--master-addr",
        first_pod_host(request.run_id, settings.kind),
        "--master-port",
        str(STORE_PORT),
    )
    return (
        settings.python,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        str(request.nnodes),
        "--nproc-per-node",
        str(request.nproc_per_node),
        *(alone if request.nnodes == 1 else together),
        "--max-restarts",
        str(request.max_restarts),
        "-m",
        "hangdrill.rank",
        request.target,
        *request.args,
    )
