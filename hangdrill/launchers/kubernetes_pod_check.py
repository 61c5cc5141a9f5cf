"""What schemas leave open of a pod, and an API server refuses: words, names that clash, mounts without volume. Pure.

It looks at every pod in a document, wherever it is, and takes a wrong shape for granted: the schemas tell of that.
"""

from collections.abc import Iterator
from typing import Any

__all__ = ["pod_problems"]

POLICIES = ("Always", "OnFailure", "Never")
OF_JOBS = ("OnFailure", "Never")


def pod_problems(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) for every pod of a document."""
    jobs = document.get("kind") in ("Job", "JobSet", "CronJob")
    for path, spec in _pods(document, ""):
        yield from _policies(path, spec, OF_JOBS if jobs else POLICIES)
        yield from _containers(path, spec)
        yield from _mounts(path, spec, has_claims=document.get("kind") in ("JobSet", "StatefulSet"))


def _pods(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: ANN401  # any YAML
    """Every table that has a list of containers, and its path."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _pods(item, f"{path}[{number}]")
    elif isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield path, value
        else:
            for name, item in value.items():
                yield from _pods(item, f"{path}.{name}" if path else str(name))


def _policies(path: str, spec: dict[str, Any], right: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    policy = spec.get("restartPolicy", "Always")
    if isinstance(policy, str) and policy not in right:
        said = f'"{policy}"' if "restartPolicy" in spec else "nothing, which is Always,"
        yield f"{path}.restartPolicy", f"{said} is not one of {', '.join(right)}"


def _containers(path: str, spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for place, container in _each(path, spec):
        name = container.get("name")
        if isinstance(name, str) and name in seen:
            yield f"{place}.name", f'another container is called "{name}" too'
        seen.add(str(name))
        policy = container.get("restartPolicy")
        if isinstance(policy, str) and policy != "Always" and "initContainers[" in place:
            yield f"{place}.restartPolicy", f'"{policy}" is not Always, the one word that makes a native sidecar'


def _mounts(path: str, spec: dict[str, Any], *, has_claims: bool) -> Iterator[tuple[str, str]]:
    """A JobSet and a StatefulSet may add volumes of their own, so there a mount without one is no mistake."""
    names = {one.get("name") for one in _tables(spec.get("volumes"))}
    for place, container in _each(path, spec):
        targets: set[str] = set()
        for number, mount in enumerate(_tables(container.get("volumeMounts"))):
            name, target = mount.get("name"), mount.get("mountPath")
            if isinstance(name, str) and name not in names and not has_claims:
                yield f"{place}.volumeMounts[{number}].name", f'there is no volume "{name}"'
            if isinstance(target, str) and target in targets:
                yield f"{place}.volumeMounts[{number}].mountPath", f"another mount is at {target} too"
            targets.add(str(target))


def _each(path: str, spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(_tables(spec.get(kind))):
            yield f"{path}.{kind}[{number}]", container


def _tables(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401  # any YAML
    return [one if isinstance(one, dict) else {} for one in value] if isinstance(value, list) else []
