"""`[job.kubernetes]` of a scenario: how a job is put into pods, and where its evidence goes.

The keys are a contract (docs/reference/scenario.md). What they become is in `hangdrill.launchers.kubernetes_pod`.
"""

from typing import Literal

import msgspec

__all__ = ["Kubernetes", "RunVolume"]


class RunVolume(msgspec.Struct, frozen=True, kw_only=True):
    """Where the run directory lies in a cluster. kind: pvc, hostPath or nfs; name: a claim, a path, or SERVER:PATH."""

    kind: Literal["pvc", "hostPath", "nfs"]
    name: str

    @classmethod
    def parse(cls, text: str) -> "RunVolume":
        """ "pvc:CLAIM", "hostPath:/PATH" or "nfs:SERVER:/PATH". ValueError with the reason when it is none of them."""
        kind, _, name = text.partition(":")
        if kind == "pvc" and name and "/" not in name and ":" not in name:
            return cls(kind="pvc", name=name)
        if kind == "hostPath" and name.startswith("/"):
            return cls(kind="hostPath", name=name)
        server, _, path = name.partition(":")
        if kind == "nfs" and server and path.startswith("/"):
            return cls(kind="nfs", name=name)
        raise ValueError("it must be pvc:CLAIM, hostPath:/PATH or nfs:SERVER:/PATH")


class Kubernetes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a job becomes pods. Only `engine = "cluster"` ever speaks to a cluster, and only to the named context."""

    engine: Literal["podman", "cluster"] = "podman"
    """podman: one pod on this host, with `podman play kube`."""
    context: str | None = None
    """Of the kubeconfig. Must be named: the current one is never taken."""
    kind: Literal["jobset", "job"] = "jobset"
    namespace: str = "default"
    image: str | None = None
    """With torch. podman needs none: the host's programs are mounted."""
    collector_image: str | None = None
    """With hangdrill; default: image."""
    python: str = "python3"
    """In the images of a cluster."""
    run_volume: str | None = None
    """See RunVolume. The controller must see it at the same path."""
    mount_path: str | None = None
    """Where both the pods and the controller have run_volume; run directories are below it."""
    empty_dirs: tuple[str, ...] = ()
    """Directories of the ranks' container that are an emptyDir each: they go with the pod."""
    socket_medium: Literal["Memory", "disk"] = "Memory"
    """Of the emptyDir with the ranks' sockets."""
    gpus: int = 0
    """Of each pod, as nvidia.com/gpu."""
    resources: dict[str, str] = msgspec.field(default_factory=dict)
    """Further requests and limits of the ranks' container: cpu, memory, ..."""
    collector_memory: str = "1Gi"
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    service_account: str | None = None
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    """Of the pods."""
    grace_s: int = 60
    """terminationGracePeriodSeconds: ranks and collector together."""
    ttl_s: int = 3600
    """A finished job is removed by the cluster after this."""
    deletion: Literal["forced", "graceful"] = "forced"
    """How `survives = ["pod-deletion"]` deletes: without any notice, or with TERM and grace_s."""

    def empty_dir_of(self, path: str) -> str | None:
        """The emptyDir that a path of the ranks' container lies in."""
        holding = [place for place in self.empty_dirs if f"{path}/".startswith(f"{place.rstrip('/')}/")]
        return max(holding, key=len, default=None)
