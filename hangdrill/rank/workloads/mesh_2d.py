"""A 2D mesh, DP x TP (N/2 x 2): the hidden layer is split over "tp", the parameters are sharded over "dp" by FSDP2."""

import torch._dynamo  # noqa: F401 - sharding imports it when it begins; here, before the ranks wait for one another
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from hangdrill.rank.workloads.common import GradientDescent, batches, loss_of, small_model, start


def main() -> None:
    """Train."""
    job = start()
    if job.world_size % 2:
        raise SystemExit(f"mesh-2d needs an even number of ranks, got {job.world_size}")
    mesh = init_device_mesh(job.device.type, (job.world_size // 2, 2), mesh_dim_names=("dp", "tp"))
    for name in ("dp", "tp"):  # else they would have torch's 30 minutes, whatever the default group's timeout is
        _set_pg_timeout(job.timeout, mesh.get_group(name))
    model = parallelize_module(small_model(job), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    optimizer = GradientDescent(model.parameters(), lr=0.1)
    for inputs, labels in batches(job, seed=mesh["dp"].get_local_rank()):
        optimizer.zero_grad()
        loss_of(model(inputs), labels).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
