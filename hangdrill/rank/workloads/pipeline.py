"""A pipeline of one stage a rank: activations go down by send and recv, gradients come back by batched p2p.

Each step begins with p2p, and ends with one all_reduce of the step's statistics over all stages.
"""

from typing import Any

import torch
import torch.distributed as dist

from hangdrill.rank.workloads.common import BATCH, CLASSES, FEATURES, GradientDescent, Job, batches, loss_of, start

MICROBATCHES = 2
HIDDEN = 16


def main() -> None:
    """Train."""
    job = start()
    stage = _stage(job)
    optimizer = GradientDescent(stage.parameters(), lr=0.1)
    for inputs, labels in batches(job, seed=0):  # the first stage uses the inputs, the last one the labels
        optimizer.zero_grad()
        passed = [
            _forward(job, stage, *part)
            for part in zip(inputs.chunk(MICROBATCHES), labels.chunk(MICROBATCHES), strict=True)
        ]
        for given, result in passed:
            _backward(job, given, result)
        optimizer.step()
        _share_statistics(job, passed)
    dist.destroy_process_group()


def _stage(job: Job) -> Any:
    torch.manual_seed(job.rank)
    width = FEATURES if job.rank == 0 else HIDDEN
    layers = [torch.nn.Linear(width, HIDDEN), torch.nn.Tanh()]
    if _is_last(job):
        layers.append(torch.nn.Linear(HIDDEN, CLASSES))
    return torch.nn.Sequential(*layers).to(job.device)


def _is_last(job: Job) -> bool:
    return job.rank == job.world_size - 1


def _forward(job: Job, stage: Any, inputs: Any, labels: Any) -> tuple[Any, Any]:
    """One microbatch down this stage: (what came in, what went out; of the last stage the loss)."""
    given = inputs
    if job.rank > 0:
        given = torch.empty(BATCH // MICROBATCHES, HIDDEN, device=job.device)
        dist.recv(given, job.rank - 1)
        given.requires_grad_()
    result = stage(given)
    if _is_last(job):
        return given, loss_of(result, labels) / MICROBATCHES
    dist.send(result.detach(), job.rank + 1)
    return given, result


def _backward(job: Job, given: Any, result: Any) -> None:
    """One microbatch's gradient back up this stage."""
    if _is_last(job):
        result.backward()
    else:
        gradient = torch.empty_like(result)
        _batched(dist.P2POp(dist.irecv, gradient, job.rank + 1))
        result.backward(gradient)
    if job.rank > 0:
        _batched(dist.P2POp(dist.isend, given.grad, job.rank - 1))


def _batched(operation: Any) -> None:
    for work in dist.batch_isend_irecv([operation]):
        work.wait()


def _share_statistics(job: Job, passed: list[tuple[Any, Any]]) -> None:
    """All stages learn the step's loss, the size of the largest activation, and how many microbatches went through."""
    results = torch.stack([result.detach().abs().max() for _, result in passed])
    loss = results.sum() if _is_last(job) else torch.zeros((), device=job.device)
    count = torch.tensor(float(len(passed)), device=job.device)
    dist.all_reduce(torch.stack([loss, results.max(), results.min(), count]))


if __name__ == "__main__":
    main()
