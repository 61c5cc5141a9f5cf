"""The device of a rank: how it is bound, and how much memory the rank holds there."""

from typing import Any

import torch

from hangdrill.rank.accelerator import bind, device_of
from hangdrill.rank.canary.host_memory import host_bytes, host_peak_bytes

__all__ = ["choose_device", "held_bytes", "peak_bytes", "start_context", "synchronize"]


def choose_device(backend: str, how: str, local_rank: int) -> Any:
    """explicit, derived: the rank's own GPU is made current. none: no GPU is chosen, torch guesses. first: the planted
    mistake, GPU 0 on every rank."""
    device = device_of(backend, 0 if how == "first" else local_rank)
    if how != "none":
        bind(device)
    return device


def start_context(device: Any) -> None:
    """A first allocation, so that what a CUDA context takes is not laid on the process group's account."""
    if device.type != "cpu":
        torch.zeros(1, device=device)
        synchronize(device)


def synchronize(device: Any) -> None:
    """Wait for what was enqueued."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)


def held_bytes(device: Any) -> int:
    """Memory in use: of the whole GPU, whoever holds it; of this process, without mapped files, elsewhere."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return int(total - free)
    if device.type == "cpu":
        return host_bytes()
    return int(getattr(torch, device.type).memory_reserved(device))


def peak_bytes(device: Any) -> int:
    """The most that was in use. torch keeps what it once had, so on a GPU that is what it holds at the end."""
    return host_peak_bytes() if device.type == "cpu" else held_bytes(device)
