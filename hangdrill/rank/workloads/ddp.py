"""DistributedDataParallel: the C++ reducer starts one all_reduce of the gradients a step, inside backward()."""

import torch._dynamo  # noqa: F401 - DDP imports it when it is made; here, before the ranks wait for one another
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hangdrill.rank.workloads.common import GradientDescent, batches, loss_of, small_model, start


def main() -> None:
    """Train."""
    job = start()
    model = DistributedDataParallel(small_model(job))
    optimizer = GradientDescent(model.parameters(), lr=0.1)
    for inputs, labels in batches(job, seed=job.rank):
        optimizer.zero_grad()
        loss_of(model(inputs), labels).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
