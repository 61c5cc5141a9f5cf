"""The documents that are applied: a JobSet, or an Indexed Job with its headless service; and their YAML. Pure.

Nothing is tried twice (backoffLimit 0, no restarts of the set): a drill that restarts by itself would hide its outcome.
"""

import json
from collections.abc import Iterable

from hangdrill.launchers.kubernetes_pod import RANKS, RUN_LABEL, Document, PodOrder, labels, pod_template
from hangdrill.model.errors import MachineError

__all__ = ["STORE_PORT", "documents", "first_pod_host", "job_name", "to_yaml"]

STORE_PORT = 29400


def job_name(run_id: str) -> str:
    """The name of the JobSet, the Job or the pod, and of its headless service."""
    return f"hangdrill-{run_id}"


def first_pod_host(run_id: str, kind: str) -> str:
    """Where the other pods of a job find the first one, as its headless service tells."""
    name = job_name(run_id)
    return f"{name}-{RANKS}-0-0.{name}" if kind == "jobset" else f"{name}-0.{name}"


def documents(order: PodOrder, nnodes: int) -> tuple[Document, ...]:
    """What is applied, in this order."""
    if order.settings.kind == "jobset":
        return (_jobset(order, nnodes),)
    return (_service(order), _indexed_job(order, nnodes))


def to_yaml(parts: Iterable[Document], comment: str = "") -> str:
    """One YAML stream, the keys in the order that people write them. MachineError without PyYAML."""
    try:
        import yaml
    except ImportError as error:
        raise MachineError(
            "PyYAML is not installed, so no manifest can be written or read",
            next_step='pip install "hangdrill[kubernetes]"',
        ) from error
    head = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    plain = json.loads(json.dumps(list(parts)))  # what is the same object twice would become an alias
    return head + "---\n".join(yaml.safe_dump(part, sort_keys=False, width=120) for part in plain)


def _jobset(order: PodOrder, nnodes: int) -> Document:
    settings, name = order.settings, job_name(order.run_id)
    ranks = {"name": RANKS, "replicas": 1, "template": {"spec": _job_spec(order, nnodes)}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(order),
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": 0},
            "ttlSecondsAfterFinished": settings.ttl_s,
            "replicatedJobs": [ranks],
        },
    }


def _indexed_job(order: PodOrder, nnodes: int) -> Document:
    spec = {**_job_spec(order, nnodes), "ttlSecondsAfterFinished": order.settings.ttl_s}
    spec["template"]["spec"]["subdomain"] = job_name(order.run_id)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(order), "spec": spec}


def _service(order: PodOrder) -> Document:
    """Headless: it only gives the pods names. They meet before any of them is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(order),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {RUN_LABEL: order.run_id},
            "ports": [{"name": "store", "port": STORE_PORT}],
        },
    }


def _job_spec(order: PodOrder, nnodes: int) -> Document:
    return {
        "completionMode": "Indexed",
        "completions": nnodes,
        "parallelism": nnodes,
        "backoffLimit": 0,
        "template": pod_template(order),
    }


def _metadata(order: PodOrder) -> Document:
    return {
        "name": job_name(order.run_id),
        "namespace": order.settings.namespace,
        "labels": labels(order),
    }
