"""A mixture of experts, one expert a rank: tokens travel to their experts and back by all_to_all_single.

The router's gradients are averaged by an all_reduce each step; an expert's own gradients stay where they are.
"""

from typing import Any

import torch
import torch.distributed as dist

from hangdrill.rank.workloads.common import CLASSES, FEATURES, GradientDescent, batches, loss_of, start


class Exchange(torch.autograd.Function):  # type: ignore[misc]  # torch is not typed here
    """Row block i goes to rank i; the gradient takes the same way back."""

    @staticmethod
    def forward(context: Any, tokens: Any) -> Any:
        """tokens: [world_size * capacity, features]."""
        received = torch.empty_like(tokens)
        dist.all_to_all_single(received, tokens.contiguous())
        return received

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        """The exchange is its own transpose."""
        returned = torch.empty_like(gradient)
        dist.all_to_all_single(returned, gradient.contiguous())
        return returned


def main() -> None:
    """Train."""
    job = start()
    torch.manual_seed(0)
    router = torch.nn.Linear(FEATURES, job.world_size).to(job.device)
    torch.manual_seed(job.rank)
    expert = torch.nn.Linear(FEATURES, CLASSES).to(job.device)
    optimizer = GradientDescent([*router.parameters(), *expert.parameters()], lr=0.1)
    for inputs, labels in batches(job, seed=job.rank):
        optimizer.zero_grad()
        loss_of(_mixture(inputs, router, expert), labels).backward()
        for parameter in router.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= job.world_size
        optimizer.step()
    dist.destroy_process_group()


def _mixture(inputs: Any, router: Any, expert: Any) -> Any:
    """Every expert sees every token (capacity = batch), weighted by the router: dense, so that shapes never vary."""
    weights = router(inputs).softmax(dim=-1)
    sent = (weights.T.unsqueeze(-1) * inputs).reshape(-1, FEATURES)
    returned = Exchange.apply(expert(Exchange.apply(sent)))
    return returned.reshape(weights.shape[1], inputs.shape[0], CLASSES).sum(dim=0)


if __name__ == "__main__":
    main()
