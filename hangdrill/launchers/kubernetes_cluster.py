"""A drill's objects in a cluster, through the official client: apply, look, delete, and what is left.

Only the context that the scenario names is used, and only what carries the run's label is read or deleted. Tried
against an API server of the tests, which speaks these few calls; not against a cluster.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from hangdrill.launchers.kubernetes_manifest import job_name
from hangdrill.launchers.kubernetes_pod import RANKS, RUN_LABEL, Document
from hangdrill.model.errors import MachineError, UsageError
from hangdrill.model.kubernetes import Kubernetes
from hangdrill.model.run import Leftover

__all__ = ["IN_CLUSTER", "Cluster", "PodFacts"]

IN_CLUSTER = "in-cluster"
"""The context of a controller that is a pod itself."""
CALL_DEADLINE_S = 30.0
LATE = {"_request_timeout": CALL_DEADLINE_S, "_preload_content": False}
"""Answers are taken as they come and read here: the client's own models differ from version to version."""
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
            _core(client).list_namespaced_pod(self._settings.namespace, limit=1, **LATE)

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
            found = _items(_core(client).list_namespaced_pod(**self._mine(run_id)))
        return tuple(sorted((_facts(pod) for pod in found), key=lambda pod: pod.name))

    def logs(self, pod: str) -> str:
        """What the ranks of a pod wrote; "" when it is gone or has not started."""
        from kubernetes.client.exceptions import ApiException

        with self._client() as client, contextlib.suppress(ApiException):
            told = _core(client).read_namespaced_pod_log(pod, self._settings.namespace, container=RANKS, **LATE)
            return bytes(told.data).decode(errors="replace")
        return ""

    def delete(self, run_id: str, *, grace_s: int) -> None:
        """Delete all of a run: owners in the foreground, so that they go after their pods. grace_s 0: by force, which
        pods must be told themselves. Returns at once; safe to repeat."""
        from kubernetes import client as api

        name, namespace = job_name(run_id), self._settings.namespace
        foreground = {"propagation_policy": "Foreground", **LATE}
        with self._client() as client:
            with _unless_gone():
                if self._settings.kind == "jobset":
                    custom = api.CustomObjectsApi(client)
                    custom.delete_namespaced_custom_object(**JOBSET, namespace=namespace, name=name, **foreground)
                else:
                    api.BatchV1Api(client).delete_namespaced_job(name, namespace, **foreground)
            for pod in _items(_core(client).list_namespaced_pod(**self._mine(run_id))):
                with _unless_gone():
                    pod_name = pod.metadata.name
                    _core(client).delete_namespaced_pod(pod_name, namespace, grace_period_seconds=grace_s, **LATE)
            if self._settings.kind == "job":
                with _unless_gone():
                    _core(client).delete_namespaced_service(name, namespace, **LATE)

    def leftovers(self, run_id: str) -> tuple[Leftover, ...]:
        """Pods, jobs, jobsets and services of a run."""
        from kubernetes import client as api

        mine = self._mine(run_id)
        with self._client() as client:
            looks: dict[str, Callable[[], Any]] = {
                "pod": lambda: _core(client).list_namespaced_pod(**mine),
                "job": lambda: api.BatchV1Api(client).list_namespaced_job(**mine),
                "service": lambda: _core(client).list_namespaced_service(**mine),
            }
            if self._settings.kind == "jobset":
                looks["jobset"] = lambda: api.CustomObjectsApi(client).list_namespaced_custom_object(**JOBSET, **mine)
            found = [(kind, one.metadata.name) for kind, look in looks.items() for one in _items(look())]
        return tuple(Leftover(what="container", name=f"{kind}/{name}") for kind, name in found)

    def _create(self, client: Any, document: Document) -> None:  # noqa: ANN401  # the client has no types
        from kubernetes import client as api

        namespace = self._settings.namespace
        match document["kind"]:
            case "JobSet":
                custom = api.CustomObjectsApi(client)
                custom.create_namespaced_custom_object(**JOBSET, namespace=namespace, body=document, **LATE)
            case "Job":
                api.BatchV1Api(client).create_namespaced_job(namespace, document, **LATE)
            case _:
                _core(client).create_namespaced_service(namespace, document, **LATE)

    def _mine(self, run_id: str) -> dict[str, Any]:
        return {
            "namespace": self._settings.namespace,
            "label_selector": f"{RUN_LABEL}={run_id}",
            **LATE,
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
        except (
            kubernetes.client.exceptions.ApiException,
            urllib3.exceptions.HTTPError,
            msgspec.MsgspecError,
            OSError,
        ) as error:
            raise MachineError(
                f"the cluster refuses: {_last_words(error)}",
                where=f"context {context}, namespace {self._settings.namespace}",
                next_step="try `kubectl auth can-i create jobs` there; a JobSet needs its controller installed",
            ) from error


def _core(client: Any) -> Any:  # noqa: ANN401  # the client has no types
    from kubernetes import client as api

    return api.CoreV1Api(client)


class _Metadata(msgspec.Struct, frozen=True):
    name: str


class _Terminated(msgspec.Struct, frozen=True):
    exitCode: int  # the API's own name


class _State(msgspec.Struct, frozen=True):
    terminated: _Terminated | None = None


class _Container(msgspec.Struct, frozen=True):
    name: str
    state: _State = _State()


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""
    containerStatuses: tuple[_Container, ...] | None = None  # the API's own name


class _Item(msgspec.Struct, frozen=True):
    """What is read of any object; of all but pods only the name."""

    metadata: _Metadata
    status: _Status | None = None


class _List(msgspec.Struct, frozen=True):
    items: tuple[_Item, ...] | None = None


def _items(answer: Any) -> tuple[_Item, ...]:  # noqa: ANN401  # urllib3's
    return msgspec.json.decode(bytes(answer.data), type=_List).items or ()


def _facts(pod: _Item) -> PodFacts:
    status = pod.status or _Status()
    ended = next((one.state.terminated for one in status.containerStatuses or () if one.name == RANKS), None)
    return PodFacts(name=pod.metadata.name, phase=status.phase, exit_code=None if ended is None else ended.exitCode)


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
