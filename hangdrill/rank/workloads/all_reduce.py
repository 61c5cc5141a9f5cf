"""Data-parallel training by hand: one all_reduce of all gradients, flattened, a step."""

import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from hangdrill.rank.workloads.common import GradientDescent, batches, loss_of, small_model, start


def main() -> None:
    """Train."""
    job = start()
    model = small_model(job)
    optimizer = GradientDescent(model.parameters(), lr=0.1)
    for inputs, labels in batches(job, seed=job.rank):
        optimizer.zero_grad()
        loss_of(model(inputs), labels).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        flat = parameters_to_vector(gradients)
        dist.all_reduce(flat)
        vector_to_parameters(flat / job.world_size, gradients)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
