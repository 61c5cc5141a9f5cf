"""What the workloads share: their command line, the start of the job, a small seeded dataset and a small model."""

import argparse
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from hangdrill.rank.accelerator import bind, device_of, synchronize
from hangdrill.rank.current import fault_kind, step

__all__ = ["BATCH", "CLASSES", "FEATURES", "GradientDescent", "Job", "batches", "loss_of", "small_model", "start"]

BATCH, FEATURES, CLASSES = 8, 16, 4
SAMPLES = 64

READY_LIMIT_S = 120
"""How long ranks wait for one another before they make the process group: they import torch at different speeds, and
the process group's own timeout, which also bounds its rendezvous, is short in a drill."""


@dataclass(frozen=True)
class Job:
    """This rank's place in the job. `device` is what the backend moves: a GPU for nccl, the CPU for gloo."""

    rank: int
    world_size: int
    device: Any
    steps: int
    timeout: timedelta


class GradientDescent:
    """Plain gradient descent. The first torch.optim optimizer of a process imports torch._dynamo with sympy and triton:
    a second of CPU in every rank, which would be most of what a drill adds to importing torch."""

    def __init__(self, parameters: Iterable[Any], lr: float) -> None:
        self._parameters = tuple(parameters)
        self._lr = lr

    def zero_grad(self) -> None:
        """Forget the gradients of the step before."""
        for parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
        """Apply the gradients; tells the agent, since there is no torch optimizer that it could watch."""
        step()
        with torch.no_grad():
            for parameter in self._parameters:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=self._lr)


def start() -> Job:
    """Read the command line, wait until every rank is here, and make the default process group."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--timeout-s", type=float, default=5.0)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--bind", choices=("explicit", "derived"), default="explicit")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = device_of(options.backend, int(os.environ.get("LOCAL_RANK", "0")))
    bind(device)
    _wait_for_all_ranks()
    dist.init_process_group(
        options.backend,
        timeout=timedelta(seconds=options.timeout_s),
        device_id=device if options.bind == "explicit" and device.type != "cpu" else None,
    )
    return Job(
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        device=device,
        steps=options.steps,
        timeout=timedelta(seconds=options.timeout_s),
    )


def batches(job: Job, *, seed: int) -> Iterator[tuple[Any, Any]]:
    """(inputs [BATCH, FEATURES], labels [BATCH]) for each step, from a DataLoader over a dataset made of `seed`."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    workers = 1 if fault_kind() == "dataloader" else 0
    loader = DataLoader(
        TensorDataset(inputs, labels),
        batch_size=BATCH,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )
    done = 0
    while done < job.steps:
        for given, expected in loader:
            if done == job.steps:
                return
            yield given.to(job.device), expected.to(job.device)
            synchronize(job.device)
            done += 1


def small_model(job: Job, *, hidden: int = 32) -> Any:
    """Two layers; the same weights on every rank."""
    torch.manual_seed(0)
    layers = (torch.nn.Linear(FEATURES, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, CLASSES))
    return torch.nn.Sequential(*layers).to(job.device)


def loss_of(outputs: Any, labels: Any) -> Any:
    """The training loss of one batch."""
    return torch.nn.functional.cross_entropy(outputs, labels)


def _wait_for_all_ranks() -> None:
    """Meet in torchrun's own store. Raises torch.distributed.DistStoreError after READY_LIMIT_S."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        timeout=timedelta(seconds=READY_LIMIT_S),
    )
    ready = f"hangdrill/ready/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if store.add(ready, 1) == int(os.environ["WORLD_SIZE"]):
        store.set(f"{ready}/all", "1")
    store.wait([f"{ready}/all"])
