"""What groups cost that nobody uses, and how long collectives and transfers take, by size."""

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from hangdrill.rank.canary.device import held_bytes, synchronize
from hangdrill.rank.canary.timing import Timed, timed_operations, warm_clocks

if TYPE_CHECKING:
    from hangdrill.rank.canary.job import Job

__all__ = ["groups", "latency", "p2p"]

ROUNDS = 60
"""Batches of each operation."""
BATCH = {True: 20, False: 5}
"""Operations of a batch, by whether there is a GPU."""
LARGE_BATCH = {True: 3, False: 2}
LARGE_BYTES = {True: 64 << 20, False: 1 << 20}
"""From this size on LARGE_BATCH operations are one batch."""
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
    """all_reduce of each size, one operation after another."""
    warm_clocks(job.device)
    job.meet("latency")
    operations = {
        f"all_reduce_{size}_s": Timed(partial(dist.all_reduce, _buffer(job, size)), _batch(job, size))
        for size in job.options.sizes_bytes
    }
    job.record.measures |= timed_operations(operations, job.device, rounds=ROUNDS, turns=job.turns, part="latency")


def p2p(job: "Job") -> None:
    """Between rank 0 and its peer, by send and recv, there and back; the others wait, for the other job's turns too: a
    meeting has a limit of its own. RuntimeError without a peer.

    The first transfer is noted by itself: ProcessGroupNCCL makes another communicator for it.
    """
    peer = job.options.peer
    if not 0 < peer < job.world_size:
        raise RuntimeError(f"a transfer needs two ranks, and there is no rank {peer}")
    warm_clocks(job.device)
    job.meet("p2p")
    operations = {}
    if job.rank in (0, peer):
        _first_transfer(job)
        operations = {
            f"p2p_{size}_s": Timed(partial(_there_and_back, _buffer(job, size), job.rank, peer), _batch(job, size))
            for size in job.options.sizes_bytes
        }
    job.record.measures |= timed_operations(operations, job.device, rounds=ROUNDS, turns=job.turns, part="p2p")
    job.meet("transferred")


def _first_transfer(job: "Job") -> None:
    buffer = _buffer(job, FLOAT_BYTES)
    synchronize(job.device)
    before_bytes, began_s = held_bytes(job.device), time.perf_counter()
    _there_and_back(buffer, job.rank, job.options.peer)
    synchronize(job.device)
    job.record.measures["first_p2p_s"] = time.perf_counter() - began_s
    job.record.measures["first_p2p_bytes"] = max(0, held_bytes(job.device) - before_bytes)


def _buffer(job: "Job", size_bytes: int) -> Any:
    return torch.zeros(size_bytes // FLOAT_BYTES, device=job.device)


def _batch(job: "Job", size_bytes: int) -> int:
    return (LARGE_BATCH if size_bytes >= LARGE_BYTES[job.large] else BATCH)[job.large]


def _there_and_back(buffer: Any, rank: int, peer: int) -> None:
    if rank == 0:
        dist.send(buffer, peer)
        dist.recv(buffer, peer)
    else:
        dist.recv(buffer, 0)
        dist.send(buffer, 0)
