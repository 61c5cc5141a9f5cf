"""The pod of a drill: the ranks' container, the collector as a native sidecar, and what they share. Pure.

The sidecar (an init container that is restarted always) starts before the ranks and gets its TERM after they have
ended, so that it outlives them by what is left of the grace period. Both run as one user and see each other's
processes. Of the run directory each container gets what it needs, at its own path: the ranks cannot touch their
evidence.
"""

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeAlias

import msgspec

from hangdrill.model.errors import UsageError
from hangdrill.model.kubernetes import Kubernetes, RunVolume
from hangdrill.model.scenario import Volume

__all__ = [
    "COLLECTOR",
    "CONTROLLER_LABEL",
    "RANKS",
    "RUN",
    "RUN_LABEL",
    "Document",
    "PodOrder",
    "labels",
    "pod_template",
]

Document: TypeAlias = dict[str, Any]
"""A part of a manifest, in Kubernetes' own shape."""

RANKS, COLLECTOR = "ranks", "collector"
RUN_LABEL, CONTROLLER_LABEL = "hangdrill.run", "hangdrill.controller"
RUN = "run"
_DOWNWARD = {
    "POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP",
    "NODE_NAME": "spec.nodeName",
}  # fmt: skip
_RANKS_SEE = {"agent": True, "control": False, "native": False}
"""Parts of the run directory, and whether they are read-only."""
_COLLECTOR_SEES = {"control": False, "native": True, "evidence": False, "collector.log": False}


class PodOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod is made of. collector: its command, () where torch is left alone. environ: what the drill sets.

    native, dump and volume directories of the run directory are made by the controller before anything is applied.
    """

    run_id: str
    controller: str
    settings: Kubernetes
    command: tuple[str, ...]
    collector: tuple[str, ...]
    environ: dict[str, str]
    collector_environ: dict[str, str] = {}
    uid: int
    gid: int
    run_dir: str
    volumes: tuple[Volume, ...] = ()


def pod_template(order: PodOrder) -> Document:
    """metadata and spec, for a Job or a JobSet. UsageError when the run directory is not on the run volume."""
    settings = order.settings
    volumes, shared = _shared(order)
    mounts = [*(_part(order, name, read_only) for name, read_only in _RANKS_SEE.items()), *shared]
    spec: Document = {
        "restartPolicy": "Never",
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": settings.grace_s,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_ranks(order, [*mounts, {"name": "shm", "mountPath": "/dev/shm"}])],
        "volumes": [_run_volume(settings), {"name": "shm", "emptyDir": {"medium": "Memory"}}, *volumes],
    }
    if order.collector:
        spec["initContainers"] = [_collector(order, shared)]
    if settings.node_selector:
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.service_account is not None:
        spec["serviceAccountName"] = settings.service_account
    else:
        spec["automountServiceAccountToken"] = False
    metadata: Document = {"labels": labels(order)}
    if settings.annotations:
        metadata["annotations"] = dict(settings.annotations)
    return {"metadata": metadata, "spec": spec}


def labels(order: PodOrder) -> dict[str, str]:
    """Of everything that is made: whose run it is, and which controller's (":" is not allowed in a label)."""
    controller = {CONTROLLER_LABEL: order.controller.replace(":", ".")} if order.controller else {}
    return {RUN_LABEL: order.run_id, **controller}


def _ranks(order: PodOrder, mounts: list[Document]) -> Document:
    settings = order.settings
    amounts = {**settings.resources, **({"nvidia.com/gpu": str(settings.gpus)} if settings.gpus else {})}
    container = _container(
        order,
        name=RANKS,
        image=_image(settings, settings.image),
        command=order.command,
        environ=order.environ,
        mounts=mounts,
    )
    if amounts:
        container["resources"] = {"requests": amounts, "limits": dict(amounts)}
    return container


def _collector(order: PodOrder, shared: list[Document]) -> Document:
    settings = order.settings
    seen = [{**mount, "readOnly": True} if mount["name"] != "sockets" else mount for mount in shared]
    mounts = [*(_part(order, name, read_only) for name, read_only in _COLLECTOR_SEES.items()), *seen]
    image = _image(settings, settings.collector_image or settings.image)
    container = _container(
        order,
        name=COLLECTOR,
        image=image,
        command=order.collector,
        environ=order.collector_environ,
        mounts=mounts,
    )
    container["restartPolicy"] = "Always"
    container["resources"] = {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"memory": settings.collector_memory},
    }
    return container


def _container(
    order: PodOrder,
    *,
    name: str,
    image: str,
    command: tuple[str, ...],
    environ: Mapping[str, str],
    mounts: list[Document],
) -> Document:
    user = {"runAsUser": order.uid, "runAsGroup": order.gid, "runAsNonRoot": order.uid != 0}
    return {
        "name": name,
        "image": image,
        "command": [_verbatim(word) for word in command],
        "env": [*_env(environ), *_downward()],
        "securityContext": {**user, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts,
    }


def _shared(order: PodOrder) -> tuple[list[Document], list[Document]]:
    """Volumes that only this pod has, and the mounts of what ranks and collector both see."""
    settings = order.settings
    medium = {"medium": "Memory", "sizeLimit": "16Mi"} if settings.socket_medium == "Memory" else {}
    volumes: list[Document] = [{"name": "sockets", "emptyDir": medium}]
    mounts: list[Document] = [{"name": "sockets", "mountPath": f"{order.run_dir}/sockets"}]
    for number, place in enumerate(settings.empty_dirs):
        volumes.append({"name": f"empty-{number}", "emptyDir": {}})
        mounts.append({"name": f"empty-{number}", "mountPath": place.rstrip("/")})
    for number, volume in enumerate(order.volumes):
        if volume.source == "tmpfs":
            volumes.append({"name": f"volume-{number}", "emptyDir": {"medium": "Memory"}})
            mounts.append({"name": f"volume-{number}", "mountPath": volume.target})
        elif volume.source.startswith("/"):
            volumes.append({"name": f"volume-{number}", "hostPath": {"path": volume.source}})
            mounts.append(_mount(f"volume-{number}", volume.target, volume.read_only))
        else:
            part = _part(order, f"volumes/{volume.source}", volume.read_only)
            mounts.append({**part, "mountPath": volume.target})
    return volumes, mounts


def _part(order: PodOrder, name: str, read_only: bool) -> Document:
    """A part of the run directory, from the run volume."""
    path = f"{order.run_dir}/{name}"
    root = order.settings.mount_path or "/"
    if not PurePosixPath(path).is_relative_to(root) or ".." in PurePosixPath(path).parts:
        raise UsageError(
            f"the run directory {order.run_dir} is not on the run volume, which is mounted at {root}",
            where="job.kubernetes.mount_path",
            next_step=f"let --out name a directory below {root}, where this host must have the same volume mounted",
        )
    return {**_mount(RUN, path, read_only), "subPath": str(PurePosixPath(path).relative_to(root))}


def _mount(name: str, path: str, read_only: bool) -> Document:
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def _run_volume(settings: Kubernetes) -> Document:
    volume = RunVolume.parse(settings.run_volume or "")
    match volume.kind:
        case "pvc":
            return {"name": RUN, "persistentVolumeClaim": {"claimName": volume.name}}
        case "hostPath":
            return {"name": RUN, "hostPath": {"path": volume.name, "type": "Directory"}}
        case _:
            server, _, path = volume.name.partition(":")
            return {"name": RUN, "nfs": {"server": server, "path": path}}


def _image(settings: Kubernetes, image: str | None) -> str:
    if image is None:
        raise UsageError(
            "a cluster needs an image, and the scenario names none",
            where="job.kubernetes.image",
            next_step="name one with torch (and hangdrill, or name another one in collector_image)",
        )
    return image


def _env(environ: Mapping[str, str]) -> Iterable[Document]:
    return ({"name": name, "value": _verbatim(value)} for name, value in sorted(environ.items()))


def _downward() -> Iterable[Document]:
    return ({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _DOWNWARD.items())


def _verbatim(text: str) -> str:
    """Kubernetes would replace $(NAME). Of what hangdrill writes only $(JOB_COMPLETION_INDEX) is meant."""
    return text if text == "$(JOB_COMPLETION_INDEX)" else text.replace("$(", "$$(")
