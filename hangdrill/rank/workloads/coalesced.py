"""Data-parallel training by hand, with the gradients' all_reduces coalesced into one launch (`_coalescing_manager`)."""

import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from hangdrill.rank.workloads.common import GradientDescent, batches, loss_of, small_model, start


def main() -> None:
    """Train."""
    job = start()
    model = small_model(job)
    optimizer = GradientDescent(model.parameters(), lr=0.1)
    device = None if job.device.type == "cpu" else job.device  # gloo cannot open a batch, but has the operation itself
    for inputs, labels in batches(job, seed=job.rank):
        optimizer.zero_grad()
        loss_of(model(inputs), labels).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        with _coalescing_manager(device=device, async_ops=True) as batch:
            for gradient in gradients:
                dist.all_reduce(gradient)
        batch.wait()
        for gradient in gradients:
            gradient.div_(job.world_size)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
