"""Does what a pod's ranks leave outlive the pod? Pure, but for the look at the mount table.

A job's own pod is looked at from inside; a scenario says what its pod will be.
"""

from collections.abc import Iterator
from pathlib import Path

from hangdrill.model.preflight import Finding
from hangdrill.model.scenario import Trigger
from hangdrill.preflight.catalogue import found
from hangdrill.preflight.surroundings import Surroundings

__all__ = ["is_empty_dir", "pod_findings"]

KUBELETS_WORD = "/kubernetes.io~empty-dir/"
"""In the path by which the kubelet mounts an emptyDir on disk; one in memory is a tmpfs."""


def pod_findings(facts: Surroundings) -> Iterator[Finding]:
    """All of this family; none for a job that is not in a pod."""
    place, pod = facts.place, facts.pod
    if place.in_empty_dir:
        what = f"dumps go to an emptyDir ({place.directory}), which is deleted with the pod"
        mend = "mount a PersistentVolumeClaim, nfs or hostPath volume there"
        yield found("dump-in-empty-dir", what=what, where=place.chosen_by, mend=mend)
    if pod is None:
        return
    if facts.job.trigger is not Trigger.COLLECTOR:
        what = "the pod has no collector beside its ranks: nobody stores their evidence while the pod is ended"
        mend = 'set recorder.trigger = "collector": then it is a native sidecar, which outlives the ranks'
        yield found("sidecar-missing", what=what, where="recorder.trigger", mend=mend)
    if pod.socket_medium == "Memory" and "memory" in pod.resources:
        what = (
            f"the emptyDir of the ranks' sockets is memory, and counts to the pod's limit ({pod.resources['memory']})"
        )
        mend = 'nothing: sockets take no room; or set socket_medium = "disk"'
        yield found("sockets-in-memory", what=what, where="job.kubernetes.socket_medium", mend=mend)


def is_empty_dir(directory: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether the mount that holds a directory is a pod's emptyDir on disk, as the kubelet names it."""
    try:
        real, lines = directory.resolve(), mounts.read_text(errors="replace").splitlines()
    except OSError:
        return False
    holding = [words for words in map(str.split, lines) if len(words) > 4 and real.is_relative_to(words[4])]
    deepest = max(holding, key=lambda words: len(words[4]), default=None)
    return deepest is not None and KUBELETS_WORD in deepest[3]
