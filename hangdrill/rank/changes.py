"""Faults that change one operation of the rank: leave it out, do another one, or give it other tensors.

All are done inside the operation's pre-hook, so they reach what C++ starts too (DDP's reducer). Tensors are made
smaller, never larger: gloo aborts the rank that receives more than it expects, and that must be the culprit.

An operation is left out in one of two ways. If the program called a function of torch.distributed, the pre-hook raises,
before the backend and any recorder see it, and that function catches it. If C++ started it, another backend takes it;
that is no use where the recorder is a hook of the group (nccl2, nccl-lazy), for it records what any backend does.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from hangdrill.rank.groups import replace_function
from hangdrill.rank.wrapped import FUNCTIONS

__all__ = ["CannotChange", "Change"]

SMALLER_DTYPE = {
    torch.float64: torch.float32,
    torch.float32: torch.float16,
    torch.float16: torch.int8,
    torch.bfloat16: torch.int8,
    torch.int64: torch.int32,
    torch.int32: torch.int8,
    torch.int8: torch.uint8,
    torch.uint8: torch.int8,
}

SHARED_UNIT = ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all")
"""Operations whose inputs and outputs must keep their proportion, else the culprit's own call is refused."""


class CannotChange(Exception):
    """This operation cannot be changed so; the fault does not take."""


class _LeftOut(Exception):
    """Raised by a pre-hook through torch, and caught by the function that the program called."""


class Change:
    """Changes one operation. `undo` runs in the post-hook of the same operation."""

    def __init__(self, kind: str) -> None:
        self._apply: Callable[[Any, str, Any], bool] = {
            "skip": self._skip,
            "wrong-op": self._do_another,
            "wrong-shape": self._shrink,
            "wrong-dtype": self._retype,
        }[kind]
        self._undo: list[Callable[[], None]] = []
        self._depth = 0
        self._kept: list[Any] = []
        if kind in ("skip", "wrong-op"):
            for function in FUNCTIONS:
                if hasattr(dist, function):
                    replace_function(function, self._catching)
        self._idle: Any = None  # held here: C++ does not keep a backend that is written in Python alive

    def apply(self, operation: Any, op: str, pg: Any) -> bool:
        """Change it. True when the rank then really enters it. Raises CannotChange."""
        return self._apply(operation, op, pg)

    def undo(self) -> None:
        """Put back what must not outlast the operation."""
        while self._undo:
            self._undo.pop()()

    def check(self, operation: Any, op: str, pg: Any) -> None:
        """Raise CannotChange before anything is reported."""
        if self._apply in (self._skip, self._do_another) and not self._depth and _is_recorded_by_hook(pg):
            raise CannotChange(f"{op} was started by C++, and the recorder would show it: choose another operation")
        if self._apply == self._shrink:
            _smaller_sizes(operation, op, pg)
        if self._apply == self._retype:
            _smaller_dtypes(operation)

    def _skip(self, operation: Any, op: str, pg: Any) -> bool:
        """Take the operation back, or let a backend that does nothing take it; no recorder sees it."""
        if self._depth:
            raise _LeftOut(op)
        self._idle = _idle_backend(op, pg)
        for device in _devices(operation, pg):
            real, kind = pg._get_backend(device), _backend_type(pg, device)
            _bind_alike(self._idle, real)
            pg._register_backend(device, dist.ProcessGroup.BackendType.CUSTOM, self._idle)
            self._undo.append(partial(pg._register_backend, device, kind, real))
        return False

    def _catching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                return original(*args, **kwargs)
            except _LeftOut:
                is_async = kwargs.get("async_op") or original.__name__ in ("isend", "irecv")
                return _finished_work([]) if is_async else None
            finally:
                self._depth -= 1

        return operation

    def _do_another(self, operation: Any, op: str, pg: Any) -> bool:
        """Wait in a broadcast from another rank (or an all_reduce); should it end, leave the right one out."""
        tensor = torch.zeros(3, device=_devices(operation, pg)[0])
        if op == "broadcast":
            dist.all_reduce(tensor, group=pg)
        else:
            ranks = dist.get_process_group_ranks(pg)
            dist.broadcast(tensor, src=next(rank for rank in ranks if rank != dist.get_rank()), group=pg)
        return self._skip(operation, op, pg)

    def _shrink(self, operation: Any, op: str, pg: Any) -> bool:
        for tensor, size in _smaller_sizes(operation, op, pg):
            self._give(tensor, tensor.detach().flatten()[:size].clone())
        return True

    def _retype(self, operation: Any, op: str, pg: Any) -> bool:
        for tensor, dtype in _smaller_dtypes(operation):
            self._give(tensor, tensor.detach().to(dtype))
        return True

    def _give(self, tensor: Any, other: Any) -> None:
        """Let the backend get `other` as the content. On a GPU the program gets its own back once the operation
        is enqueued: it goes on at once, and would fail on the wrong size before anything hangs. gloo's threads read the
        tensor later, and the program waits for them."""
        own = tensor.detach()
        tensor.data = other
        if other.device.type != "cpu":
            self._kept.append(other)  # the GPU may still write to it
            self._undo.append(partial(setattr, tensor, "data", own))


class _IdleAllReduce(torch._C._distributed_c10d.Backend):  # type: ignore[misc]  # torch is not typed here
    """Leaves an all_reduce out, with what DDP's reducer asks for: a future of the tensors, which torch's fake lacks."""

    def allreduce(self, tensors: list[Any], options: Any) -> Any:
        """The tensors as they are."""
        return _finished_work(tensors)


def _finished_work(tensors: list[Any]) -> Any:
    devices = sorted({tensor.device for tensor in tensors if tensor.device.type != "cpu"}, key=str)
    done: Any = torch.futures.Future(devices=devices or None)
    done.set_result(tensors)
    return torch._C._distributed_c10d._create_work_from_future(done)


def _is_recorded_by_hook(pg: Any) -> bool:
    """Whether the flight recorder of this group is a hook on it (torch 2.15, for what does not record itself)."""
    return pg in getattr(c10d._world, "pg_flight_recorder_hooks", {})


def _idle_backend(op: str, pg: Any) -> Any:
    if op == "all_reduce":
        with contextlib.suppress(
            TypeError
        ):  # before torch 2.14 Python cannot make one; nor is the reducer reached there
            return _IdleAllReduce(pg.rank(), pg.size())
    fake_class = torch._C._distributed_c10d.FakeProcessGroup
    return getattr(fake_class, "_create_internal", fake_class)(pg.rank(), pg.size())


def _bind_alike(idle: Any, real: Any) -> None:
    """torch wants all backends of a group bound to the same device."""
    bound = getattr(real, "bound_device_id", None)
    if bound is not None:
        idle.bound_device_id = bound


def _tensors(operation: Any) -> list[Any]:
    """Each tensor of the operation once; an in-place operation names its own twice."""
    return list({id(tensor): tensor for tensor in (*operation.input_tensors, *operation.output_tensors)}.values())


def _smaller_sizes(operation: Any, op: str, pg: Any) -> Sequence[tuple[Any, int]]:
    tensors = _tensors(operation)
    sizes = [tensor.numel() for tensor in tensors]
    if op.startswith(SHARED_UNIT):
        unit = min(sizes, default=0)
        if op == "all_to_all_single":
            unit //= pg.size()
        units = [unit] * len(sizes)
    else:
        units = sizes
    if not units or min(units) < 2:
        raise CannotChange(f"{op} of {sizes} elements cannot be made smaller: choose another operation")
    return [(tensor, size // unit * (unit // 2)) for tensor, size, unit in zip(tensors, sizes, units, strict=True)]


def _smaller_dtypes(operation: Any) -> Sequence[tuple[Any, Any]]:
    tensors = _tensors(operation)
    if not tensors or any(tensor.dtype not in SMALLER_DTYPE for tensor in tensors):
        raise CannotChange(f"no other dtype for {[str(tensor.dtype) for tensor in tensors]}: choose another operation")
    return [(tensor, SMALLER_DTYPE[tensor.dtype]) for tensor in tensors]


def _devices(operation: Any, pg: Any) -> list[Any]:
    """Of the operation's tensors; a barrier has none, so all that the group serves."""
    found = {tensor.device.type for tensor in _tensors(operation)} or {device.type for device in pg._device_types}
    return [torch.device(kind) for kind in sorted(found)]


def _backend_type(pg: Any, device: Any) -> Any:
    """Under which type the group had registered its backend for this device."""
    config = c10d._world.pg_backend_config.get(pg, "")
    by_device = dict(part.split(":", 1) for part in str(config).split(",") if ":" in part)
    name = by_device.get(device.type, "")
    return c10d.Backend.backend_type_map.get(name, dist.ProcessGroup.BackendType.CUSTOM)
