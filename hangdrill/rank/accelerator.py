"""What this rank's torch calls its accelerator: which device a backend moves, and the faults that need one.

Nothing here names a vendor: NVIDIA and AMD are both `cuda` to torch, Intel is `xpu`. Only `cuda` on NVIDIA was tested.
"""

import os
from typing import Any, NoReturn

import torch
import torch.distributed as dist

__all__ = ["NoAccelerator", "bind", "device_of", "need_cuda", "run_endless_kernel", "run_out_of_memory", "synchronize"]

CYCLES_PER_S = 2_000_000_000
"""The clock of today's fastest GPUs: an endless kernel lasts a little longer on a slower one."""
BEYOND_BYTES = 1 << 30


class NoAccelerator(RuntimeError):
    """The fault needs a GPU, and this rank has none."""


def device_of(backend: str, local_rank: int) -> Any:
    """The device that this backend moves: of "cpu:gloo,cuda:nccl" the accelerator, of a name what torch registered."""
    for part in backend.split(","):
        kind, _, name = part.strip().rpartition(":")
        for device in [kind] if kind else _devices_of(name):
            if device != "cpu":
                return torch.device(device, local_rank)
    return torch.device("cpu")


def _devices_of(name: str) -> list[str]:
    """gloo serves GPUs too, through the host; it is drilled on the CPU. One from out of the tree is loaded first."""
    load = getattr(dist.Backend, "_ensure_backend_registered", None)
    if load is not None:
        load(name)
    known = list(dist.Backend.backend_capability.get(name.lower(), ()))
    if "cpu" in known:
        return ["cpu"]
    return known or (["cuda"] if "nccl" in name else ["cpu"])


def bind(device: Any) -> None:
    """Make it this process's current device, before anything is placed on it."""
    if device.type != "cpu":
        getattr(torch, device.type).set_device(device)


def synchronize(device: Any) -> None:
    """Wait for what was enqueued, as a loop does that logs its loss; else ranks would run ahead of a hang."""
    if device.type != "cpu":
        getattr(torch, device.type).current_stream().synchronize()


def need_cuda() -> None:
    """Raise NoAccelerator unless there is a CUDA device."""
    if not torch.cuda.is_available():
        raise NoAccelerator("this fault needs a CUDA device, and torch sees none")


def run_endless_kernel(*, limit_s: float) -> None:
    """Occupy the current stream with a kernel that only the end of the process, or the limit, ends."""
    need_cuda()
    torch.cuda._sleep(int(limit_s * CYCLES_PER_S))


def run_out_of_memory() -> NoReturn:
    """Raise what a rank dies of: one request for more than is free. It is refused as a whole, so neighbours on the same
    GPU lose nothing. Raises torch.OutOfMemoryError."""
    need_cuda()
    free, _ = torch.cuda.mem_get_info()
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    torch.empty(max(free, total) + BEYOND_BYTES, dtype=torch.uint8, device="cuda")
    raise NoAccelerator(f"process {os.getpid()} was given more memory than the device has")
