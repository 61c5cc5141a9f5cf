"""Seconds of a training step, for each way to spread a model: real code of torch, a small model, seeded data."""

import time
from collections.abc import Callable
from math import ceil
from statistics import mean
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from hangdrill.rank.canary.device import synchronize

if TYPE_CHECKING:
    from hangdrill.rank.canary.job import Job

__all__ = ["PARTS", "batch_of", "data_parallel", "descend", "model_of", "timed_steps"]

WARM_STEPS = 3
BLOCKS = 60
BLOCK_STEPS = 2
"""Where two jobs take turns: blocks, and how many timed steps each has at least. Many short ones: how the threads of a
job come to lie on the cores of a busy host changes from block to block, and stays as it is within one."""
RATE = 1e-3
MICROBATCHES = 2
Step = Callable[[], None]


def sizes(job: "Job") -> tuple[int, int]:
    """(batch, width)."""
    return (64, 2048) if job.large else (256, 256)


def model_of(job: "Job") -> Any:
    """Four layers, the same weights on every rank."""
    _, width = sizes(job)
    torch.manual_seed(job.options.seed)
    layers: list[Any] = []
    for _ in range(2):
        layers += [torch.nn.Linear(width, width), torch.nn.GELU()]
    return torch.nn.Sequential(*layers).to(job.device)


def batch_of(job: "Job") -> Any:
    """Inputs [batch, width]; each rank its own."""
    generator = torch.Generator().manual_seed(job.options.seed + job.rank)
    return torch.randn(*sizes(job), generator=generator).to(job.device)


def descend(model: Any) -> None:
    """Plain gradient descent: the first torch.optim optimizer of a process imports a second's worth of modules."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=RATE)
                parameter.grad = None


def timed_steps(job: "Job", name: str, step: Step) -> None:
    """Record `name`_step_s and how many steps were made in all.

    One after another, it is the mean of --steps steps; in turns with another job, of as many or more, in blocks, of
    which the slowest and the fastest tenth do not count.
    """
    for _ in range(WARM_STEPS):
        step()
    synchronize(job.device)
    job.meet(name)
    if job.turns.together:
        means_s, made = _in_blocks(job, name, step)
    else:
        means_s, made = [_mean_s(job, step, job.options.steps)], job.options.steps
    job.record.measures[f"{name}_step_s"] = middle_mean(means_s)
    job.record.measures[f"{name}_steps"] = WARM_STEPS + made


def _in_blocks(job: "Job", name: str, step: Step) -> tuple[list[float], int]:
    """(the mean of each block, how many steps were made)."""
    each = max(BLOCK_STEPS, ceil(job.options.steps / BLOCKS))
    means_s = []
    job.turns.open(name)
    for number in range(BLOCKS):
        with job.turns.block(name, number):
            step()  # the other job was here
            means_s.append(_mean_s(job, step, each))
    job.turns.close(name)
    return means_s, BLOCKS * (1 + each)


def middle_mean(numbers: list[float]) -> float:
    """The mean without the largest and the smallest tenth. ValueError of none."""
    out = len(numbers) // 10
    return mean(sorted(numbers)[out : len(numbers) - out])


def _mean_s(job: "Job", step: Step, count: int) -> float:
    """Seconds of a step, over `count` of them."""
    synchronize(job.device)
    began_s = time.perf_counter()
    for _ in range(count):
        step()
    synchronize(job.device)
    return (time.perf_counter() - began_s) / count


def plain_step(model: Any, inputs: Any) -> Step:
    """Forward, backward, descend."""

    def step() -> None:
        model(inputs).square().mean().backward()
        descend(model)

    return step


def data_parallel(job: "Job") -> Any:
    """DistributedDataParallel: gradients are reduced inside backward()."""
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model_of(job))


def _dp(job: "Job") -> None:
    timed_steps(job, "dp", plain_step(data_parallel(job), batch_of(job)))


def _fsdp(job: "Job") -> None:
    timed_steps(job, "fsdp", plain_step(_sharded(model_of(job)), batch_of(job)))


def _tp(job: "Job") -> None:
    mesh = init_device_mesh(job.device.type, (job.world_size,), mesh_dim_names=("tp",))
    torch.manual_seed(job.options.seed)  # every rank works on the same batch
    inputs = torch.randn(*sizes(job)).to(job.device)
    timed_steps(job, "tp", plain_step(_split(model_of(job), mesh), inputs))


def _mesh_2d(job: "Job") -> None:
    """DP x TP, N/2 x 2: with two ranks the first dimension is 1, and the record says so."""
    if job.world_size % 2:
        raise RuntimeError(f"a 2D mesh needs an even number of ranks, got {job.world_size}")
    mesh = init_device_mesh(job.device.type, (job.world_size // 2, 2), mesh_dim_names=("dp", "tp"))
    job.record.facts["mesh"] = [job.world_size // 2, 2]
    model = _sharded(_split(model_of(job), mesh["tp"]), mesh=mesh["dp"])
    timed_steps(job, "2d", plain_step(model, batch_of(job)))


def _sharded(model: Any, **mesh: Any) -> Any:
    from torch.distributed.fsdp import fully_shard

    if not mesh:
        for at in (0, 2):
            fully_shard(model[at])
    return fully_shard(model, **mesh)


def _split(model: Any, mesh: Any) -> Any:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def _pp(job: "Job") -> None:
    """One stage a rank: activations go down, gradients come back, by send and recv of microbatches."""
    if job.world_size < 2:
        raise RuntimeError("a pipeline needs two ranks")
    torch.manual_seed(job.options.seed + job.rank)
    batch, width = sizes(job)
    stage = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()).to(job.device)
    inputs = batch_of(job).chunk(MICROBATCHES)
    first, last = job.rank == 0, job.rank == job.world_size - 1

    def forward(part: Any) -> tuple[Any, Any]:
        given = part
        if not first:
            given = torch.empty(batch // MICROBATCHES, width, device=job.device)
            dist.recv(given, job.rank - 1)
            given.requires_grad_()
        result = stage(given)
        if not last:
            dist.send(result.detach(), job.rank + 1)
        return given, result

    def backward(given: Any, result: Any) -> None:
        if last:
            result.square().mean().backward()
        else:
            gradient = torch.empty_like(result)
            dist.recv(gradient, job.rank + 1)
            result.backward(gradient)
        if not first:
            dist.send(given.grad, job.rank - 1)

    def step() -> None:
        for given, result in [forward(part) for part in inputs]:
            backward(given, result)
        descend(stage)

    timed_steps(job, "pp", step)


PARTS: dict[str, Callable[["Job"], None]] = {"dp": _dp, "fsdp": _fsdp, "tp": _tp, "pp": _pp, "2d": _mesh_2d}
"""Name of the part -> what runs it."""
