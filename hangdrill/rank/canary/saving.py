"""Checkpoints: how long saving and restoring takes, and how long a job needs from a rank's death to its next step."""

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from hangdrill.rank.canary.device import synchronize
from hangdrill.rank.canary.training import batch_of, data_parallel, model_of, plain_step, timed_steps

if TYPE_CHECKING:
    from hangdrill.rank.canary.job import Job

__all__ = ["checkpoint", "recover"]

BLOCK_BYTES = {True: 256 << 20, False: 4 << 20}
"""What a checkpoint carries beside the model, by whether there is a GPU."""
DEAD_LIMIT_S = 60.0


def checkpoint(job: "Job") -> None:
    """torch.distributed.checkpoint, synchronous, of the model and a block of each rank's own."""
    directory = job.options.out / "checkpoint"
    state = _state(job)
    job.meet("save")
    began_s = time.perf_counter()
    dcp.save(state, checkpoint_id=directory)
    job.record.measures["save_s"] = time.perf_counter() - began_s
    job.record.measures["restore_s"] = _restored_s(job, state)


def recover(job: "Job") -> None:
    """First attempt: the last rank dies by SIGKILL, and torchrun starts all again. Second: restore, and one step."""
    model, inputs = data_parallel(job), batch_of(job)
    step = plain_step(model, inputs)
    if job.record.attempt == 0:
        dcp.save(_state(job), checkpoint_id=job.options.out / "recovery")
        step()
        synchronize(job.device)
        job.meet("recover")
        _die(job)
        return
    _restored_s(job, _state(job), "recovery")
    step()
    synchronize(job.device)
    job.meet("recovered")
    job.record.mark("recovered")
    timed_steps(job, "recovered", step)


def _die(job: "Job") -> None:
    if job.rank == job.world_size - 1:
        job.record.mark("killed")
        job.record.save()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(DEAD_LIMIT_S)  # torchrun ends this process; it waits no longer than this for that
    raise RuntimeError(f"still alive {DEAD_LIMIT_S:g} s after rank {job.world_size - 1} died: nobody restarted the job")


def _state(job: "Job") -> dict[str, Any]:
    """The model, and something large; every rank saves its own block."""
    generator = torch.Generator().manual_seed(job.options.seed)
    block = torch.randn(BLOCK_BYTES[job.large] // 4 // job.world_size, generator=generator).to(job.device)
    return {"model": model_of(job).state_dict(), f"block_{job.rank}": block}


def _restored_s(job: "Job", state: dict[str, Any], name: str = "checkpoint") -> float:
    """Seconds of reading the state back in place; RuntimeError when it is not what was saved."""
    expected = {key: value.clone() for key, value in state["model"].items()}
    with torch.no_grad():
        for value in state["model"].values():
            value.zero_()
    began_s = time.perf_counter()
    dcp.load(state, checkpoint_id=job.options.out / name)
    synchronize(job.device)
    taken_s = time.perf_counter() - began_s
    for key, value in expected.items():
        if not torch.equal(value, state["model"][key]):
            raise RuntimeError(f"{key} was not restored bit by bit")
    dist.barrier()
    return taken_s
