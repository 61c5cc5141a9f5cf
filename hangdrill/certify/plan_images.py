"""Stacks of a plan that are container images: their paths, and the mistakes with them."""

from collections.abc import Callable, Iterator
from typing import Any

from hangdrill.drill.scenario_shape import Problem
from hangdrill.model.certify_plan import CertifyPlan, StackPlan
from hangdrill.model.container import IMAGE_PYTHON
from hangdrill.model.scenario import Volume

__all__ = ["fill_image", "image_mistakes"]


def fill_image(table: object, path_of: Callable[[str], str]) -> bool:
    """Whether the table is an image's; then its Python is filled in, and the sources of its mounts are made absolute.
    Whatever has a wrong type is left for msgspec to say so."""
    if not isinstance(table, dict) or not table.get("image"):
        return False
    table.setdefault("python", IMAGE_PYTHON)
    mounts = table.get("mounts")
    if isinstance(mounts, list):
        table["mounts"] = [_mended(text, path_of) for text in mounts]
    return True


def image_mistakes(plan: CertifyPlan) -> Iterator[Problem]:
    """A stack is a Python or an image; mounts are an image's, and of this host's directories."""
    stacks: list[tuple[str, StackPlan]] = [("baseline", plan.baseline), ("candidate", plan.candidate)]
    stacks += [(f"checkpoint.stack[{number}]", stack) for number, stack in enumerate(plan.checkpoint.stack)]
    for key, stack in stacks:
        if not stack.python and not stack.image:
            yield Problem(f"{key}.python", "this key is missing", 'name a Python, or an image: image = "train:2.15"')
        if stack.mounts and not stack.image:
            yield Problem(f"{key}.mounts", "only an image has mounts", "leave it out: a Python sees this host")
        for text in stack.mounts:
            if problem := _mistake_in(text):
                yield Problem(f"{key}.mounts", f'"{text}": {problem}', 'for instance "/data:/data:ro"')


def _mended(text: Any, path_of: Callable[[str], str]) -> Any:  # noqa: ANN401 - of any type still
    if not isinstance(text, str):
        return text
    source, colon, rest = text.partition(":")
    return f"{path_of(source)}{colon}{rest}" if source else text


def _mistake_in(text: str) -> str:
    """Empty when there is none."""
    try:
        volume = Volume.parse(text)
    except ValueError as error:
        return str(error)
    return "" if volume.source.startswith("/") else "the source must be a path of this host"
