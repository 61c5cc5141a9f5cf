"""A drill's job in a cluster, followed by polling; and the rank agent, brought along on the run volume."""

import shutil
import signal
import time
from pathlib import Path

from hangdrill.launchers.agent_path import rank_package
from hangdrill.launchers.kubernetes_cluster import Cluster, PodFacts
from hangdrill.launchers.protocol import LaunchRequest
from hangdrill.model.errors import MachineError
from hangdrill.model.kubernetes import Kubernetes
from hangdrill.model.run import Leftover
from hangdrill.model.scenario import Teardown

__all__ = ["ClusterJob", "bring_agent"]

LOOK_S = 1.0
"""A job is polled often; the cluster is asked once in this time."""
GONE_S = 60.0
"""After the grace period, until nothing is left of deleted pods."""


class ClusterJob:
    """The pods of a run. It is over when the ranks of all of them have ended, or all are gone."""

    def __init__(self, cluster: Cluster, settings: Kubernetes, request: LaunchRequest) -> None:
        self._cluster = cluster
        self._settings = settings
        self._request = request
        self._exit_code: int | None = None
        self._seen = False
        self._next_look_s = 0.0
        self._logged: set[str] = set()

    def poll(self) -> int | None:
        """The first bad exit code, else 0."""
        if self._exit_code is not None or time.monotonic() < self._next_look_s:
            return self._exit_code
        self._next_look_s = time.monotonic() + LOOK_S
        pods = self._cluster.pods(self._request.run_id)
        if self._seen and not pods:
            self._exit_code = -int(signal.SIGKILL)
        elif len(pods) >= self._request.nnodes and all(pod.over for pod in pods):
            self._save_logs(pods)
            codes = [1 if pod.exit_code is None else pod.exit_code for pod in pods]
            code = next((code for code in codes if code), 0)
            self._exit_code = 128 - code if code > 128 else code
        self._seen = self._seen or bool(pods)
        return self._exit_code

    def signal(self, number: signal.Signals) -> None:
        """A cluster passes no signals on: TERM and INT are a deletion with the grace period, KILL is one without."""
        self._delete(0 if number is signal.SIGKILL else self._settings.grace_s)

    def pids(self) -> tuple[int, ...]:
        """None on this host."""
        return ()

    def close(self) -> None:
        """Nothing is held."""

    def remove(self) -> None:
        """By force, and wait until all is gone."""
        self._delete(0)
        self._await_gone(GONE_S)

    def undergo(self, teardown: Teardown) -> None:
        """pod-deletion is its own; the controller does the others."""
        if teardown is Teardown.POD_DELETION:
            grace_s = self._settings.grace_s if self._settings.deletion == "graceful" else 0
            self._delete(grace_s)
            self._await_gone(grace_s + GONE_S)

    def locate(self, path: str) -> Path | None:
        """The run volume, which this host has at the same path. What is in a pod alone is out of reach."""
        return Path(path) if Path(path).is_relative_to(self._settings.mount_path or "/nowhere") else None

    def leftovers(self) -> tuple[Leftover, ...]:
        """Of this run, in its namespace."""
        return self._cluster.leftovers(self._request.run_id)

    def _delete(self, grace_s: int) -> None:
        self._save_logs(self._cluster.pods(self._request.run_id))
        self._cluster.delete(self._request.run_id, grace_s=grace_s)
        self._seen = True
        self._next_look_s = 0.0

    def _save_logs(self, pods: tuple[PodFacts, ...]) -> None:
        """Once for each pod, before it goes."""
        for pod in pods:
            if pod.name not in self._logged and (text := self._cluster.logs(pod.name)):
                self._logged.add(pod.name)
                with Path(self._request.log_path).open("a", encoding="utf-8") as log:
                    log.write(f"== {pod.name}\n{text}")

    def _await_gone(self, deadline_s: float) -> None:
        """The API has no call that waits for an end; a watch would end by itself too."""
        until_s = time.monotonic() + deadline_s
        while left := self._cluster.pods(self._request.run_id):
            if time.monotonic() > until_s:
                names = ", ".join(pod.name for pod in left)
                raise MachineError(
                    f"deleted pods are still there after {deadline_s:g} s: {names}",
                    where=f"namespace {self._settings.namespace}",
                    next_step="look at them with kubectl describe: a node may be lost, or a finalizer may hold them",
                )
            time.sleep(min(LOOK_S, deadline_s / 10))


def bring_agent(run_dir: str) -> None:
    """A copy of the rank agent in place of the link: the pods see the run volume, and nothing else of this host."""
    place = Path(run_dir) / "agent/hangdrill/rank"
    if place.is_symlink():
        place.unlink()
        shutil.copytree(rank_package(), place, ignore=shutil.ignore_patterns("__pycache__"))
