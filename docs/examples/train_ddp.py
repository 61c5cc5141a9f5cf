"""Train a small classifier with DistributedDataParallel, the way the public tutorials do.

    torchrun --nproc-per-node 4 train_ddp.py --epochs 2
    hangdrill run --script train_ddp.py --nproc 4 --hold 1 --before all_reduce:20

It knows nothing of hangdrill.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Spirals(Dataset):
    """Points on interleaved spirals: a data set that needs no download."""

    def __init__(self, points: int = 2048, arms: int = 4, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(arms, (points,), generator=generator)
        radius = torch.rand(points, generator=generator)
        angle = radius * 8 + self.labels * (2 * torch.pi / arms)
        noise = 0.03 * torch.randn(points, 2, generator=generator)
        self.points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1) + noise

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.points[index], self.labels[index]


class Trainer:
    """The loop: forward, backward (DDP's reducer averages the gradients), step, and a validation once an epoch."""

    def __init__(
        self, model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, device: torch.device
    ) -> None:
        self.model = model
        self.loader = loader
        self.optimizer = optimizer
        self.device = device

    def train_epoch(self, epoch: int) -> float:
        self.loader.sampler.set_epoch(epoch)
        total = torch.zeros((), device=self.device)
        for points, labels in self.loader:
            self.optimizer.zero_grad(set_to_none=True)
            logits = self.model(points.to(self.device))
            loss = nn.functional.cross_entropy(logits, labels.to(self.device))
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        return total.item() / (len(self.loader) * dist.get_world_size())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--timeout-s", type=float, default=5.0)
    options = parser.parse_args()

    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=options.timeout_s))
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)

    data = Spirals()
    loader = DataLoader(data, batch_size=options.batch_size, sampler=DistributedSampler(data), drop_last=True)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    model = DistributedDataParallel(model, device_ids=[local_rank] if device.type == "cuda" else None)
    trainer = Trainer(model, loader, torch.optim.AdamW(model.parameters(), lr=3e-3), device)
    for epoch in range(options.epochs):
        loss = trainer.train_epoch(epoch)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
