"""The rules of `[job.kubernetes]`: what a pod, podman or a cluster cannot take. Pure; part of `scenario_checks`."""

import re
from collections.abc import Iterator

from hangdrill.drill.scenario_shape import Problem
from hangdrill.model.kubernetes import Kubernetes, RunVolume
from hangdrill.model.scenario import LauncherName, Scenario, Teardown

__all__ = ["kubernetes_mistakes", "kubernetes_warnings"]

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
LONGEST_GRACE_S, LONGEST_TTL_S, MOST_GPUS = 3600, 30 * 24 * 3600, 64
TORCHRUN_S = 30
"""From TERM to KILL of the ranks, by torchrun; the pod's grace should be longer."""


def kubernetes_mistakes(scenario: Scenario) -> Iterator[Problem]:
    """Nothing for other launchers: the same file runs there unchanged."""
    if scenario.job.launcher is not LauncherName.KUBERNETES:
        return
    settings = scenario.job.kubernetes
    yield from _names(settings)
    yield from _numbers(settings)
    yield from _empty_dirs(scenario)
    yield from _of_a_cluster(scenario) if settings.engine == "cluster" else _of_podman(scenario)


def kubernetes_warnings(scenario: Scenario) -> Iterator[str]:
    """What is allowed and probably not meant."""
    job, settings = scenario.job, scenario.job.kubernetes
    if job.launcher is not LauncherName.KUBERNETES:
        return
    place = settings.empty_dir_of(scenario.recorder.dump_to) if scenario.recorder.dump_to is not None else None
    if place is not None:
        yield f"recorder.dump_to: {place} is an emptyDir, which is deleted with the pod"
    if settings.grace_s <= TORCHRUN_S and settings.deletion == "graceful":
        yield (
            f"job.kubernetes.grace_s: torchrun may take {TORCHRUN_S} s to end its ranks, so after {settings.grace_s} s "
            "nothing is left for the collector"
        )


def _names(settings: Kubernetes) -> Iterator[Problem]:
    for key in ("namespace", "service_account"):
        name = getattr(settings, key)
        if name is not None and not LABEL.fullmatch(name):
            what = f'"{name}" is no name in Kubernetes: small letters, digits and -, at most 63'
            yield Problem(f"job.kubernetes.{key}", what, 'for instance "training"')


def _numbers(settings: Kubernetes) -> Iterator[Problem]:
    limits = {"grace_s": (1, LONGEST_GRACE_S), "ttl_s": (0, LONGEST_TTL_S), "gpus": (0, MOST_GPUS)}
    for key, (low, high) in limits.items():
        number = getattr(settings, key)
        if not low <= number <= high:
            yield Problem(f"job.kubernetes.{key}", f"{number} is out of bounds", f"use a number from {low} to {high}")


def _empty_dirs(scenario: Scenario) -> Iterator[Problem]:
    taken = [text.split(":")[1] for text in scenario.job.volumes if ":" in text]
    for place in scenario.job.kubernetes.empty_dirs:
        if not place.startswith("/") or not place.strip("/") or {".", ".."} & set(place.split("/")):
            what = f"{place} is no absolute path below /"
            yield Problem("job.kubernetes.empty_dirs", what, 'for instance "/scratch"')
        elif place.rstrip("/") in taken:
            yield Problem("job.kubernetes.empty_dirs", f"{place} is the target of a volume too", "keep one of them")
        taken.append(place.rstrip("/"))


def _of_podman(scenario: Scenario) -> Iterator[Problem]:
    job = scenario.job
    if job.nnodes != 1:
        what = f"podman plays one pod on this host, and the scenario asks for {job.nnodes}"
        yield Problem("job.nnodes", what, 'set nnodes = 1, or job.kubernetes.engine = "cluster"')
    if job.kubernetes.gpus:
        yield Problem("job.kubernetes.gpus", "podman play kube passes no GPU on", 'use launcher = "container"')
    if job.kubernetes.context is not None:
        what = "a context is named, and yet the pod is played by podman on this host"
        yield Problem("job.kubernetes.engine", what, 'set engine = "cluster", or leave the context out')


def _of_a_cluster(scenario: Scenario) -> Iterator[Problem]:
    settings = scenario.job.kubernetes
    needed = {
        "context": 'the current context is never taken: name one, or "in-cluster" for a controller that is a pod',
        "image": "an image with torch (and hangdrill, or name another one in collector_image)",
        "run_volume": '"pvc:CLAIM", "hostPath:/PATH" or "nfs:SERVER:/PATH"',
        "mount_path": "where both the pods and this host have run_volume",
    }
    for key, hint in needed.items():
        if getattr(settings, key) is None:
            yield Problem(f"job.kubernetes.{key}", "a cluster needs it, and it is not set", hint)
    try:
        RunVolume.parse(settings.run_volume or "pvc:none")
    except ValueError as error:
        yield Problem("job.kubernetes.run_volume", f'"{settings.run_volume}": {error}', 'for instance "pvc:drills"')
    if not (settings.mount_path or "/").startswith("/"):
        yield Problem("job.kubernetes.mount_path", f"{settings.mount_path} is not absolute", "write the whole path")
    place = scenario.recorder.deliver_to
    if place is not None and ("://" not in place or place.startswith("file:")):
        what = f"{place} is a directory, and the collector is in a pod, which does not have it"
        yield Problem("recorder.deliver_to", what, "name an object store's URL: its access is the service account's")
    if Teardown.PROCESS_KILL in scenario.expect.survives:
        what = "the processes of a cluster's pods are not this host's, so nobody can kill them one by one"
        yield Problem("expect.survives", what, 'use "pod-deletion", which ends them all')
