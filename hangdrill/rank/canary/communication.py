"""What groups cost that nobody uses, and how long collectives and transfers take, by size."""

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from hangdrill.rank.canary.device import held_bytes, synchronize, timed_s

if TYPE_CHECKING:
    from hangdrill.rank.canary.job import Job

__all__ = ["groups", "latency", "p2p"]

TIMES = 7
BATCH = 5
FLOAT_BYTES = 4


def groups(job: "Job") -> None:
    """Memory and time of one more group of all ranks: made, and never used."""
    count = job.options.groups
    before_bytes, began_s = held_bytes(job.device), time.perf_counter()
    made = [dist.new_group() for _ in range(count)]
    synchronize(job.device)
    job.record.measures["group_s"] = (time.perf_counter() - began_s) / count
    job.meet("groups")
    job.record.measures["group_bytes"] = max(0, held_bytes(job.device) - before_bytes) / count
    for group in made:
        dist.destroy_process_group(group)


def latency(job: "Job") -> None:
    """all_reduce and all_gather of each size: the median of some batches, one operation after another."""
    for size in job.options.sizes_bytes:
        buffer = torch.zeros(size // FLOAT_BYTES, device=job.device)
        gathered = torch.zeros(job.world_size * (size // FLOAT_BYTES), device=job.device)
        actions = {
            "all_reduce": partial(dist.all_reduce, buffer),
            "all_gather": partial(dist.all_gather_into_tensor, gathered, buffer),
        }
        for name, action in actions.items():
            job.record.measures[f"{name}_{size}_s"] = timed_s(action, job.device, times=TIMES, batch=BATCH)


def p2p(job: "Job") -> None:
    """There and back between ranks 0 and 1, by send and recv; the others wait. RuntimeError in a world of one."""
    if job.world_size < 2:
        raise RuntimeError("a transfer needs two ranks")
    for size in job.options.sizes_bytes:
        if job.rank < 2:
            action = partial(_there_and_back, torch.zeros(size // FLOAT_BYTES, device=job.device), job.rank)
            job.record.measures[f"p2p_{size}_s"] = timed_s(action, job.device, times=TIMES, batch=BATCH)
    job.meet("p2p")


def _there_and_back(buffer: Any, rank: int) -> None:
    if rank == 0:
        dist.send(buffer, 1)
        dist.recv(buffer, 1)
    else:
        dist.recv(buffer, 0)
        dist.send(buffer, 0)
