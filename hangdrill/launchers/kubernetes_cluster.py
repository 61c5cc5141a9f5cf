"""A drill's objects in a cluster, through the official client: apply, follow by polling, delete, look what is left.

Only the context that the scenario names is used, and only what carries the run's label is read or deleted. Tried
against an API server of the tests, which speaks these few calls; not against a cluster.
"""

import contextlib
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hangdrill.launchers.agent_path import rank_package
from hangdrill.launchers.kubernetes_manifest import job_name
from hangdrill.launchers.kubernetes_pod import RANKS, RUN_LABEL, Document
from hangdrill.launchers.protocol import LaunchRequest
from hangdrill.model.errors import MachineError, UsageError
from hangdrill.model.kubernetes import Kubernetes
from hangdrill.model.run import Leftover
from hangdrill.model.scenario import Teardown

__all__ = ["IN_CLUSTER", "Cluster", "ClusterJob", "PodFacts", "bring_agent"]

IN_CLUSTER = "in-cluster"
"""The context of a controller that is a pod itself."""
CALL_DEADLINE_S = 30.0
LOOK_S = 1.0
"""A job is polled often; the cluster is asked once in this time."""
GONE_S = 60.0
"""After the grace period, until nothing is left of deleted objects."""
JOBSET = {"group": "jobset.x-k8s.io", "version": "v1alpha2", "plural": "jobsets"}
NOT_FOUND, CONFLICT = 404, 409


class PodFacts(msgspec.Struct, frozen=True, kw_only=True):
    """exit_code: of the ranks' container, None while it runs or when nobody says."""

    name: str
    phase: str
    exit_code: int | None = None

    @property
    def over(self) -> bool:
        """Whether the ranks in it have ended."""
        return self.exit_code is not None or self.phase in ("Failed", "Succeeded")


class Cluster:
    """One namespace of one named context."""

    def __init__(self, settings: Kubernetes, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._config_file = environ.get("KUBECONFIG")

    def check(self) -> None:
        """UsageError without a named context, MachineError when it does not answer or may not be used."""
        with self._client() as client:
            _core(client).list_namespaced_pod(self._settings.namespace, limit=1, _request_timeout=CALL_DEADLINE_S)

    def apply(self, documents: tuple[Document, ...], run_id: str) -> None:
        """Create them all, or none: what was made is deleted again when one is refused."""
        try:
            with self._client() as client:
                for document in documents:
                    self._create(client, document)
        except BaseException:
            with contextlib.suppress(MachineError):
                self.delete(run_id, grace_s=0)
            raise

    def pods(self, run_id: str) -> tuple[PodFacts, ...]:
        """The run's pods, by name."""
        with self._client() as client:
            found = _core(client).list_namespaced_pod(**self._mine(run_id)).items
        return tuple(sorted((_facts(pod) for pod in found), key=lambda pod: pod.name))

    def logs(self, pod: str) -> str:
        """What the ranks of a pod wrote; "" when it is gone or has not started."""
        from kubernetes.client.exceptions import ApiException

        with self._client() as client, contextlib.suppress(ApiException):
            return str(
                _core(client).read_namespaced_pod_log(
                    pod, self._settings.namespace, container=RANKS, _request_timeout=CALL_DEADLINE_S
                )
            )
        return ""

    def delete(self, run_id: str, *, grace_s: int) -> None:
        """Delete all of a run: owners in the foreground, so that they go after their pods. grace_s 0: by force, which
        pods must be told themselves. Returns at once; safe to repeat."""
        from kubernetes import client as api

        name, namespace = job_name(run_id), self._settings.namespace
        foreground = {"propagation_policy": "Foreground", "_request_timeout": CALL_DEADLINE_S}
        with self._client() as client:
            with _unless_gone():
                if self._settings.kind == "jobset":
                    custom = api.CustomObjectsApi(client)
                    custom.delete_namespaced_custom_object(**JOBSET, namespace=namespace, name=name, **foreground)
                else:
                    api.BatchV1Api(client).delete_namespaced_job(name, namespace, **foreground)
            for pod in _core(client).list_namespaced_pod(**self._mine(run_id)).items:
                with _unless_gone():
                    _core(client).delete_namespaced_pod(
                        pod.metadata.name, namespace, grace_period_seconds=grace_s, _request_timeout=CALL_DEADLINE_S
                    )
            if self._settings.kind == "job":
                with _unless_gone():
                    _core(client).delete_namespaced_service(name, namespace, _request_timeout=CALL_DEADLINE_S)

    def leftovers(self, run_id: str) -> tuple[Leftover, ...]:
        """Pods, jobs, jobsets and services of a run."""
        from kubernetes import client as api

        mine = self._mine(run_id)
        with self._client() as client:
            found = [("pod", pod.metadata.name) for pod in _core(client).list_namespaced_pod(**mine).items]
            found += [("job", job.metadata.name) for job in api.BatchV1Api(client).list_namespaced_job(**mine).items]
            found += [("service", one.metadata.name) for one in _core(client).list_namespaced_service(**mine).items]
            if self._settings.kind == "jobset":
                told = api.CustomObjectsApi(client).list_namespaced_custom_object(**JOBSET, **mine)
                found += [("jobset", one["metadata"]["name"]) for one in told["items"]]
        return tuple(Leftover(what="container", name=f"{kind}/{name}") for kind, name in found)

    def _create(self, client: Any, document: Document) -> None:  # noqa: ANN401  # the client has no types
        from kubernetes import client as api

        namespace, late = self._settings.namespace, {"_request_timeout": CALL_DEADLINE_S}
        match document["kind"]:
            case "JobSet":
                custom = api.CustomObjectsApi(client)
                custom.create_namespaced_custom_object(**JOBSET, namespace=namespace, body=document, **late)
            case "Job":
                api.BatchV1Api(client).create_namespaced_job(namespace, document, **late)
            case _:
                _core(client).create_namespaced_service(namespace, document, **late)

    def _mine(self, run_id: str) -> dict[str, Any]:
        return {
            "namespace": self._settings.namespace,
            "label_selector": f"{RUN_LABEL}={run_id}",
            "_request_timeout": CALL_DEADLINE_S,
        }

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        context = self._settings.context
        if context is None:
            raise UsageError(
                "a cluster is asked for, and no context is named; the current one is never taken",
                where="job.kubernetes.context",
                next_step="name one of `kubectl config get-contexts`, or in-cluster for a controller that is a pod",
            )
        try:
            import kubernetes
            import urllib3
        except ImportError as error:
            raise MachineError(
                "the Kubernetes client is not installed, so no cluster can be asked",
                where="job.kubernetes.engine",
                next_step='pip install "hangdrill[kubernetes]", or use engine = "podman"',
            ) from error
        try:
            if context == IN_CLUSTER:
                kubernetes.config.load_incluster_config()
                made = kubernetes.client.ApiClient()
            else:
                made = kubernetes.config.new_client_from_config(config_file=self._config_file, context=context)
            with made as client:
                yield client
        except kubernetes.config.ConfigException as error:
            raise UsageError(
                f"the context {context} cannot be used: {error}",
                where="job.kubernetes.context",
                next_step="look at `kubectl config get-contexts` and KUBECONFIG",
            ) from error
        except (kubernetes.client.exceptions.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise MachineError(
                f"the cluster refuses: {_last_words(error)}",
                where=f"context {context}, namespace {self._settings.namespace}",
                next_step="try `kubectl auth can-i create jobs` there; a JobSet needs its controller installed",
            ) from error


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


def _core(client: Any) -> Any:  # noqa: ANN401  # the client has no types
    from kubernetes import client as api

    return api.CoreV1Api(client)


def _facts(pod: Any) -> PodFacts:  # noqa: ANN401  # the client has no types
    statuses = pod.status.container_statuses or ()
    ended = next((one.state.terminated for one in statuses if one.name == RANKS and one.state), None)
    return PodFacts(
        name=pod.metadata.name, phase=pod.status.phase or "", exit_code=None if ended is None else ended.exit_code
    )


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    """Deleted meanwhile, and that is what was wanted."""
    from kubernetes.client.exceptions import ApiException

    try:
        yield
    except ApiException as error:
        if error.status not in (NOT_FOUND, CONFLICT):
            raise


def _last_words(error: Exception) -> str:
    told = getattr(error, "body", None) or str(error)
    with contextlib.suppress(msgspec.DecodeError, KeyError, TypeError):
        return str(msgspec.json.decode(told)["message"])
    return (str(told).strip().splitlines() or [type(error).__name__])[-1]
