"""FSDP2: parameters are sharded over all ranks, gathered before use; gradients are reduced and scattered."""

import torch._dynamo  # noqa: F401 - sharding imports it when it begins; here, before the ranks wait for one another
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from hangdrill.rank.workloads.common import GradientDescent, batches, loss_of, small_model, start


def main() -> None:
    """Train."""
    job = start()
    model = small_model(job)
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    optimizer = GradientDescent(model.parameters(), lr=0.1)
    for inputs, labels in batches(job, seed=job.rank):
        optimizer.zero_grad()
        loss_of(model(inputs), labels).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
