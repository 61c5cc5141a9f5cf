"""Tensors of another GPU than the group's, and several GPUs in one process: tried, because the answer has changed.

The old implementation makes one more communicator for another GPU; the new one raises.
"""

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from hangdrill.rank.canary.training import RATE, timed_steps

if TYPE_CHECKING:
    from hangdrill.rank.canary.job import Job

__all__ = ["foreign", "several"]

MESSAGE_LENGTH = 300


def foreign(job: "Job") -> None:
    """all_reduce of a tensor on the next GPU; the facts say whether it was accepted or refused."""
    count = torch.cuda.device_count()
    if job.device.type != "cuda" or count < 2:
        raise RuntimeError(f"a tensor of another GPU needs two GPUs, and this rank sees {count}")
    other = torch.device("cuda", (job.device.index + 1) % count)
    job.record.facts["foreign_device"] = str(other)
    ones = torch.ones(4, device=other)
    try:
        dist.all_reduce(ones)
        right = ones.cpu().eq(job.world_size).all().item()
    except RuntimeError as error:
        job.record.facts["foreign"] = "refused"
        job.record.facts["foreign_error"] = str(error).splitlines()[0][:MESSAGE_LENGTH]
        return
    job.record.facts["foreign"] = "accepted" if right else "wrong result"


def several(job: "Job") -> None:
    """A model on two GPUs of this process, its gradients reduced by one group. Process i takes GPUs 2i and 2i + 1."""
    count, local = torch.cuda.device_count(), job.record.facts["local_rank"]
    if job.device.type != "cuda" or count < 2 * local + 2:
        raise RuntimeError(f"process {local} needs the GPUs {2 * local} and {2 * local + 1}, and there are {count}")
    first, second = (torch.device("cuda", 2 * local + at) for at in (0, 1))
    torch.manual_seed(job.options.seed)
    near, far = torch.nn.Linear(256, 256).to(first), torch.nn.Linear(256, 256).to(second)
    inputs = torch.randn(32, 256, device=first)
    parameters = [*near.parameters(), *far.parameters()]
    job.record.facts["several_devices"] = [str(first), str(second)]

    def step() -> None:
        far(near(inputs).to(second)).square().mean().backward()
        with torch.no_grad():
            for parameter in parameters:
                dist.all_reduce(parameter.grad)
                parameter.sub_(parameter.grad, alpha=RATE)
                parameter.grad = None

    try:
        step()
    except RuntimeError as error:
        job.record.facts["several"] = "refused"
        job.record.facts["several_error"] = str(error).splitlines()[0][:MESSAGE_LENGTH]
        return
    timed_steps(job, "several", step)
    job.record.facts["several"] = "accepted"
