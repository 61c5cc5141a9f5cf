"""Tensor parallel: the hidden layer is split over all ranks; every forward ends in an all_reduce of the outputs."""

import torch._dynamo  # noqa: F401 - sharding imports it when it begins; here, before the ranks wait for one another
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from hangdrill.rank.workloads.common import GradientDescent, batches, loss_of, small_model, start


def main() -> None:
    """Train."""
    job = start()
    mesh = init_device_mesh(job.device.type, (job.world_size,), mesh_dim_names=("tp",))
    model = small_model(job, hidden=8 * job.world_size)
    model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = GradientDescent(model.parameters(), lr=0.1)
    for inputs, labels in batches(job, seed=0):  # every rank works on the same batch
        optimizer.zero_grad()
        loss_of(model(inputs), labels).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
