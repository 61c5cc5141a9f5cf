"""The pod of a drill as `podman play kube` of podman 4.3 takes it: the same template, reduced. Pure.

What is reduced, because this podman does not know it (docs/kubernetes.md lists the same):

- the native sidecar becomes a plain container: it starts beside the ranks and not before them
- the run volume with its sub-paths becomes one hostPath for each part
- an emptyDir is a directory of podman's, on disk, whatever its medium; its name must be the run's own
- $(POD_NAME) in a command is replaced here; no other name is
- resources, node selector, service account, the seccomp profile and most of the Downward API are left out
- the network is the host's, as in every drill on one host

Added, so that no image is built: the host's programs and the ranks' environment, by hostPath as `box.py` decides; and
the ranks' output goes to job.log.
"""

from collections.abc import Iterable

from hangdrill.launchers.box import Mount
from hangdrill.launchers.kubernetes_manifest import job_name
from hangdrill.launchers.kubernetes_pod import COLLECTOR, RANKS, RUN, Document

__all__ = ["empty_dirs_of", "mounts_of", "reduced"]

_INTO_THE_LOG = 'exec "$@" >>"$0" 2>&1'
_SHM = "/dev/shm"


def reduced(
    template: Document, *, run_id: str, host: dict[str, tuple[Mount, ...]], log_path: str | None, directory: str
) -> Document:
    """A Pod. host: for each container what it gets of this host beside the template's own mounts. log_path None: the
    ranks' output goes to the container's log."""
    spec = template["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    containers, made = [], {}
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        pairs = [_own(mount, volumes, run_id) for mount in container["volumeMounts"] if mount["mountPath"] != _SHM]
        if container["name"] == RANKS and log_path is not None:
            pairs.append(_of_host(Mount(source=log_path, target=log_path, writable=True), "log"))
        pairs += [_of_host(mount, f"host{number}") for number, mount in _numbered(container["name"], host)]
        made.update({volume["name"]: volume for volume, _ in pairs})
        containers.append(_plain(container, [mount for _, mount in pairs], log_path, directory, job_name(run_id)))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": job_name(run_id), **template["metadata"]},
        "spec": {
            "restartPolicy": "Never",
            "hostNetwork": True,
            "shareProcessNamespace": spec["shareProcessNamespace"],
            "terminationGracePeriodSeconds": spec["terminationGracePeriodSeconds"],
            "containers": containers,
            "volumes": list(made.values()),
        },
    }


def mounts_of(pod: Document, container: str) -> tuple[Mount, ...]:
    """The hostPath mounts of one container of a reduced pod."""
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["spec"]["volumes"] if "hostPath" in volume}
    found = next(each for each in pod["spec"]["containers"] if each["name"] == container)
    return tuple(
        Mount(source=paths[mount["name"]], target=mount["mountPath"], writable=not mount.get("readOnly"))
        for mount in found["volumeMounts"]
        if mount["name"] in paths
    )


def empty_dirs_of(pod: Document, container: str) -> dict[str, str]:
    """Where one container of a reduced pod has an emptyDir, and podman's name of it."""
    names = {volume["name"] for volume in pod["spec"]["volumes"] if "emptyDir" in volume}
    found = next(each for each in pod["spec"]["containers"] if each["name"] == container)
    return {mount["mountPath"]: mount["name"] for mount in found["volumeMounts"] if mount["name"] in names}


def _plain(
    container: Document, mounts: list[Document], log_path: str | None, directory: str, pod_name: str
) -> Document:
    command = [_replaced(word, pod_name) for word in container["command"]]
    if container["name"] == RANKS and log_path is not None:
        command = ["/bin/sh", "-c", _INTO_THE_LOG, log_path, *command]
    return {
        "name": container["name"],
        "image": container["image"],
        "imagePullPolicy": "Never",
        "command": command,
        "workingDir": "/" if container["name"] == COLLECTOR else directory,
        "env": [
            {"name": one["name"], "value": _replaced(one["value"], pod_name)} if "value" in one else one
            for one in container["env"]
            if "value" in one or one["name"] == "POD_NAME"
        ],
        "securityContext": container["securityContext"],
        "volumeMounts": mounts,
    }


def _replaced(text: str, pod_name: str) -> str:
    """This podman replaces no $(NAME) by itself, and $$(NAME) neither."""
    return text.replace("$$(", "\0").replace("$(POD_NAME)", pod_name).replace("\0", "$(")


def _own(mount: Document, volumes: dict[str, Document], run_id: str) -> tuple[Document, Document]:
    """A mount of the template, with a volume that podman can make."""
    name = mount["name"]
    if name == RUN:
        path = volumes[name]["hostPath"]["path"].rstrip("/") + "/" + mount["subPath"]
        name = "run-" + mount["subPath"].rpartition("/")[2].replace(".", "-").lower()
        return {"name": name, "hostPath": {"path": path}}, _placed(mount, name)
    if "hostPath" in volumes[name]:
        return volumes[name], _placed(mount, name)
    name = f"{job_name(run_id)}-{name}"  # podman's volumes have one space of names
    return {"name": name, "emptyDir": {}}, _placed(mount, name)


def _placed(mount: Document, name: str) -> Document:
    read_only = {"readOnly": True} if mount.get("readOnly") else {}
    return {"name": name, "mountPath": mount["mountPath"], **read_only}


def _of_host(mount: Mount, name: str) -> tuple[Document, Document]:
    read_only = {} if mount.writable else {"readOnly": True}
    return (
        {"name": name, "hostPath": {"path": mount.source}},
        {"name": name, "mountPath": mount.target, **read_only},
    )


def _numbered(container: str, host: dict[str, tuple[Mount, ...]]) -> Iterable[tuple[str, Mount]]:
    return ((f"-{container}-{number}", mount) for number, mount in enumerate(host.get(container, ())))
