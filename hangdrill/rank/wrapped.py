"""For a torch without pre-hooks (before 2.14): the places are taken by wrapping the functions of torch.distributed.

It sees what Python calls, not what C++ starts by itself (DDP's reducer, functional collectives of DTensor and FSDP2):
the facts say placement = "wrapped", and a check that needs every operation counted can tell.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from hangdrill.rank.groups import GroupBook, Hook, replace_function
from hangdrill.rank.opnames import OpNames

__all__ = ["WrappedOperation", "wrap_functions"]

FUNCTIONS = {
    "all_reduce": "all_reduce",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "all_gather": "all_gather",
    "all_gather_into_tensor": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter_tensor",
    "all_to_all": "all_to_all",
    "all_to_all_single": "all_to_all_single",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv": "recv",
    "isend": "send",
    "irecv": "recv",
}
"""Function of torch.distributed -> operation. Functions that call one another are told apart by `_Depth`."""


@dataclass(frozen=True)
class WrappedOperation:
    """What a hook sees of an operation: the same attributes as torch's PreHookArgs."""

    name: int
    input_tensors: list[Any] = field(default_factory=list)
    output_tensors: list[Any] = field(default_factory=list)


class _Depth:
    """How many wrapped functions are under way in this process: only the outermost is an operation."""

    def __init__(self) -> None:
        self.now = 0


def wrap_functions(book: GroupBook, hooks: Callable[[Any], tuple[Hook | None, Hook | None]], names: OpNames) -> None:
    """Wrap what this torch has of FUNCTIONS. hooks: makes the pre- and post-hook of a group."""
    depth = _Depth()
    by_slot: dict[int, tuple[Hook | None, Hook | None]] = {}

    def hooks_of(pg: Any) -> tuple[Hook | None, Hook | None] | None:
        book.scan()
        group = book.known(pg)
        if group is None:
            return None
        if group.slot not in by_slot:
            by_slot[group.slot] = hooks(group)
        return by_slot[group.slot]

    for function, op in FUNCTIONS.items():
        if hasattr(dist, function):
            replace_function(function, _wrapper(names.code(op), hooks_of, depth))


def _wrapper(
    code: int, hooks_of: Callable[[Any], tuple[Hook | None, Hook | None] | None], depth: _Depth
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **kwargs: Any) -> Any:
            found = None if depth.now else hooks_of(_group(args, kwargs))
            if found is not None and found[0] is not None:
                found[0](WrappedOperation(code, _tensors(args, kwargs)))
            depth.now += 1
            try:
                return original(*args, **kwargs)
            finally:
                depth.now -= 1
                if found is not None and found[1] is not None:
                    found[1](None)

        return operation

    return make


def _group(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = kwargs.get("group") or next((value for value in args if isinstance(value, dist.ProcessGroup)), None)
    return given if given is not None else dist.group.WORLD


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for value in (*args, *kwargs.values()):
        parts = value if isinstance(value, list | tuple) else [value]
        found += [part for part in parts if isinstance(part, torch.Tensor)]
    return found
