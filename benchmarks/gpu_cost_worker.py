"""One rank of one job of benchmarks/gpu_cost.py: works a round of a load whenever it is told to.

    gpu_cost_worker.py DIRECTORY BACKEND

`DIRECTORY/go.<rank>` and `DIRECTORY/done` are FIFOs: a rank that waits blocks in the kernel and takes no time from the
others. A line "<load> <batches>" is one round; rank 0 answers with a line of JSON. The end of the file ends the job.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

LOADS = ("train", "fsdp2", "bare", "fsdp2-host")
WARM_S = 0.1
CORES_A_RANK = 8
FAR = timedelta(hours=1)


def main() -> None:
    directory, backend = Path(sys.argv[1]), sys.argv[2]
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    pin_process(local_rank)
    import torch
    import torch.distributed as dist

    on_gpu = backend != "gloo"
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=FAR, device_id=device if on_gpu else None)
    synchronize: Callable[[], Any] = torch.cuda.synchronize if on_gpu else lambda: None
    loads = make_loads(device, small=not on_gpu)
    for load in loads.values():
        load()
        synchronize()
    pin_thread(local_rank)
    with (directory / "done").open("w") as done, (directory / f"go.{rank}").open() as go:
        answer(done, rank, {"ready": True})
        for line in go:
            name, batches = line.split()
            answer(done, rank, measured(loads[name], int(batches), device, synchronize))
    dist.destroy_process_group()


def answer(done: Any, rank: int, value: Mapping[str, Any]) -> None:
    if rank == 0:
        print(json.dumps(value), file=done, flush=True)


def pin_process(local_rank: int) -> None:
    """The same cores for this rank of every job, since only one job works at a time."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= 3 * CORES_A_RANK:
        os.sched_setaffinity(0, cores[local_rank * CORES_A_RANK :][:CORES_A_RANK])


def pin_thread(local_rank: int) -> None:
    """The thread that enqueues gets one of them; the threads that torch has started keep all."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == CORES_A_RANK:
        os.sched_setaffinity(0, {cores[2]})


def make_loads(device: Any, *, small: bool) -> dict[str, Callable[[], None]]:
    """Each is one batch, after which the loop waits for the device, as one does that logs its loss."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    buffer = torch.zeros(2 * 1024 * 1024, device=device)  # 8 MB
    width = 64 if small else 4096
    left, right = (torch.randn(width, width, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(left)
    count = 2 if small else 50

    def train() -> None:
        for _ in range(count):
            torch.mm(left, right, out=product)
            dist.all_reduce(buffer)

    def bare() -> None:
        for _ in range(10 * count):
            dist.all_reduce(buffer)

    def fsdp2(tokens: int, steps: int) -> Callable[[], None]:
        torch.manual_seed(0)
        wide = 64 if small else 1024
        blocks = [
            torch.nn.Sequential(torch.nn.Linear(wide, 4 * wide), torch.nn.GELU(), torch.nn.Linear(4 * wide, wide))
            for _ in range(4)
        ]
        model = torch.nn.Sequential(*blocks).to(device)
        for block in model:
            fully_shard(block)
        fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        inputs = torch.randn(tokens, wide, device=device)

        def run() -> None:
            for _ in range(steps):
                optimizer.zero_grad()
                model(inputs).square().mean().backward()
                optimizer.step()

        return run

    return dict(zip(LOADS, (train, fsdp2(64 if small else 8192, 4), bare, fsdp2(32, 4)), strict=True))


def measured(load: Callable[[], None], batches: int, device: Any, synchronize: Callable[[], Any]) -> dict[str, float]:
    """Seconds of a round, and how many of them the host only waited for the device; both ranks begin together."""
    import torch
    import torch.distributed as dist

    gc.collect()
    gc.disable()
    began_s = time.perf_counter()
    warm = torch.zeros(1, device=device)
    while warm.item() < 1:  # both ranks do the same number of warm batches
        load()
        warm.fill_(time.perf_counter() - began_s > WARM_S)
        dist.all_reduce(warm, op=dist.ReduceOp.MIN)
    synchronize()
    waited_s = 0.0
    began_s = time.perf_counter()
    for _ in range(batches):
        load()
        enqueued_s = time.perf_counter()
        synchronize()
        waited_s += time.perf_counter() - enqueued_s
    total_s = time.perf_counter() - began_s
    gc.enable()
    return {"total_s": total_s, "waited_s": waited_s}


if __name__ == "__main__":
    main()
