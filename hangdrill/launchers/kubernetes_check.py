"""Manifests against the published schemas, offline: every mistake with its path, not only the first one.

The schemas are those of the package kubernetes-validate, the strict ones (an unknown field is a mistake). A JobSet is
no part of Kubernetes: its own schema lies beside this file, and its job templates are checked with Kubernetes' schemas.
A few rules of pods that schemas leave open are added (kubernetes_pod_check.py). What only an API server knows -
admission, quotas, names that are taken, most fields that exclude each other - is not seen.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from hangdrill.launchers.kubernetes_pod_check import pod_problems
from hangdrill.model.errors import MachineError, UsageError

__all__ = ["Mistake", "check_documents", "latest_version", "read_documents"]

JOBSET = ("jobset.x-k8s.io/v1alpha2", "JobSet")
_STRICT = re.compile(r"v(\d+\.\d+)\.\d+-local-strict")
_NAME = re.compile(r"[A-Za-z0-9./-]{1,120}")
_LONGEST_VALUE = 60
_MERGE = "tag:yaml.org,2002:merge"
_DEEPEST = 100
_MOST_VALUES = 1_000_000


class Mistake(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """document counts from 0 in the file; path as kubectl writes it: spec.containers[0].image."""

    document: int
    path: str
    what: str
    hint: str = ""


def read_documents(path: Path) -> tuple[Any, ...]:
    """The documents of a YAML or JSON file, without empty ones. UsageError when it cannot be read."""
    yaml = _import("yaml")
    try:
        text = path.read_text(encoding="utf-8")
        found = tuple(one for one in yaml.load_all(text, Loader=_loader(yaml)) if one is not None)
        _check_size(found)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise _unreadable(path, f"{error.problem or error.context}{line}") from error
    except (OSError, ValueError, OverflowError, yaml.YAMLError) as error:  # ValueError: 99999-99-99 is taken for a date
        raise _unreadable(path, (str(error) or type(error).__name__).splitlines()[0]) from error
    except RecursionError as error:
        raise _unreadable(path, "it is nested too deeply") from error
    if not found:
        raise UsageError("there is no document in it", where=str(path), next_step="name a manifest")
    return found


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(f"it is no YAML that can be read: {why}", where=str(path))


def _loader(yaml: Any) -> Any:  # noqa: ANN401  # a module, and a class of it
    """As kubectl reads: a key that a table has twice is an error, and not the last one's word."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
        def compose_mapping_node(self, anchor: str | None) -> Any:  # noqa: ANN401 - yaml has no types
            node = super().compose_mapping_node(anchor)
            seen: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                    continue
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value[:60]} is there twice", problem_mark=key.start_mark)
                seen.add(key.value)
            return node

    return Loader


def _check_size(documents: tuple[Any, ...]) -> None:
    """ValueError for what anchors unfold to without an end, or to more than any manifest is."""
    sizes: dict[int, int] = {}

    def size(value: Any, above: frozenset[int]) -> int:  # noqa: ANN401  # any YAML
        if not isinstance(value, dict | list):
            return 1
        if id(value) in above:
            raise ValueError("an anchor stands within itself")
        if len(above) >= _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} deep")
        if id(value) not in sizes:
            inner = value.values() if isinstance(value, dict) else value
            sizes[id(value)] = 1 + sum(size(one, above | {id(value)}) for one in inner)
        return sizes[id(value)]

    if sum(size(one, frozenset()) for one in documents) > _MOST_VALUES:
        raise ValueError(f"with its anchors it is more than {_MOST_VALUES} values")


def latest_version() -> str:
    """The newest Kubernetes whose schemas are installed, as 1.37."""
    return list(_folders())[-1]


def check_documents(documents: Iterable[Any], version: str | None = None) -> tuple[Mistake, ...]:
    """Every mistake of all documents. version: of Kubernetes, as 1.31; default: the latest that is known.

    UsageError for a version that is not known, MachineError without the packages of the extra `kubernetes`.
    """
    schemas = _Schemas(version or latest_version())
    return tuple(
        mistake for number, document in enumerate(documents) for mistake in sorted(_mistakes(number, document, schemas))
    )


class _Schemas:
    """The strict schemas of one version."""

    def __init__(self, version: str) -> None:
        known = _folders()
        if version.removeprefix("v") not in known:
            newest = ", ".join(list(known)[-2:])
            raise UsageError(
                f"there are no schemas of Kubernetes {version}", next_step=f"use one of {newest}, or older"
            )
        self._root = known[version.removeprefix("v")]

    def validator(self, api_version: str, kind: str) -> Any | None:  # noqa: ANN401  # jsonschema's own class
        """None when there is no such kind."""
        if not _NAME.fullmatch(api_version) or not _NAME.fullmatch(kind):
            return None
        jsonschema, referencing = _import("jsonschema"), _import("referencing")
        if (api_version, kind) == JOBSET:
            path = Path(__file__).parent / "jobset.schema.json"
        else:
            group, _, number = api_version.rpartition("/")
            parts = [kind.lower(), *([group.split(".")[0]] if group else []), number]
            path = self._root / ("-".join(parts) + ".json")
        if "/" in kind or not path.is_file():
            return None
        schema = json.loads(path.read_bytes())
        definitions = json.loads((self._root / "_definitions.json").read_bytes())
        from_contents = referencing.Resource.from_contents
        registry = from_contents(definitions) @ referencing.Registry()
        if (api_version, kind) == JOBSET:  # its references are relative to its own name
            registry = registry.with_resource("https://hangdrill/api/_definitions.json", from_contents(definitions))
        return jsonschema.Draft202012Validator(schema, registry=from_contents(schema) @ registry)


def _mistakes(number: int, document: Any, schemas: _Schemas) -> Iterator[Mistake]:  # noqa: ANN401  # any YAML
    if not isinstance(document, dict):
        yield Mistake(document=number, path="", what=f"a manifest is a table, and this is {_kind(document)}")
        return
    names = {key: document.get(key) for key in ("apiVersion", "kind")}
    for key, value in names.items():
        if not isinstance(value, str) or not value:
            yield Mistake(
                document=number, path=key, what="every manifest names it", hint='as in "apiVersion: batch/v1"'
            )
            return
    validator = schemas.validator(str(names["apiVersion"]), str(names["kind"]))
    if validator is None:
        what = f"no schema is known of {str(names['kind'])[:60]} in {str(names['apiVersion'])[:60]}"
        yield Mistake(document=number, path="kind", what=what, hint="is it a custom resource, or misspelled?")
        return
    for error in validator.iter_errors(document):
        yield from _told(number, error)
    for path, what in pod_problems(document):
        yield Mistake(document=number, path=path, what=what)


def _told(number: int, error: Any) -> Iterator[Mistake]:  # noqa: ANN401  # jsonschema's own class
    """One error of the validator as mistakes: each unknown and each missing field is one of its own."""
    path = _path(error.absolute_path)
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        right = sorted(error.schema.get("properties", {}))
        for name in sorted(set(map(str, error.instance)) - set(right)):
            near = difflib.get_close_matches(name, right, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else ""
            yield Mistake(document=number, path=_join(path, name), what="there is no such field", hint=hint)
    elif error.validator == "required":
        missing = next(name for name in error.validator_value if f"'{name}'" in error.message)
        yield Mistake(document=number, path=_join(path, missing), what="it must be set")
    elif error.validator == "type":
        wanted = [error.validator_value] if isinstance(error.validator_value, str) else error.validator_value
        what = f"expected {' or '.join(one for one in wanted if one != 'null')}, got {_kind(error.instance)}"
        yield Mistake(document=number, path=path, what=what)
    elif error.validator == "enum":
        right = [str(one) for one in error.validator_value if one is not None]
        yield Mistake(
            document=number, path=path, what=f"got {_kind(error.instance)}", hint=f"one of {', '.join(right)}"
        )
    else:
        yield Mistake(document=number, path=path, what=error.message[:200])


def _folders() -> dict[str, Path]:
    """The strict schemas that are installed, by version (1.37), the latest last."""
    root = Path(_import("kubernetes_validate").__file__).parent / "kubernetes-json-schema"
    found = {match[1]: path for path in root.iterdir() if (match := _STRICT.fullmatch(path.name))}
    return dict(sorted(found.items(), key=lambda pair: tuple(map(int, pair[0].split(".")))))


def _kind(value: Any) -> str:  # noqa: ANN401  # any YAML
    match value:
        case None:
            return "nothing"
        case bool():
            return f"boolean {str(value).lower()}"
        case int() | float():
            return f"number {value}"
        case str():
            text = value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + "..."
            return f'string "{text}"'
        case list():
            return "a list"
        case _:
            return "a table"


def _path(parts: Iterable[Any]) -> str:
    text = ""
    for part in parts:
        text = f"{text}[{part}]" if isinstance(part, int) else _join(text, str(part))
    return text


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _import(name: str) -> Any:  # noqa: ANN401  # a module
    """Late, since only this needs them. `referencing` comes with jsonschema."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MachineError(
            f"the package {name} is not installed, so no manifest can be checked",
            next_step='pip install "hangdrill[kubernetes]"',
        ) from error
