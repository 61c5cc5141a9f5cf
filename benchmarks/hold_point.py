"""What the agent's hook costs a healthy job: an all_reduce loop of two gloo ranks without, with, and after the hook.

The same loop runs in short rounds, in random order: without a hook ("no hook"), again without ("placebo": what differs
here is noise), with the counting hook ("armed"), with the hook of the faulty rank, which also looks for its operation
("watching"), and with the hooks off again ("disarmed"). Each is compared with "no hook" of the same round; printed
are the median of those differences and its 95 % bootstrap interval. gloo's own time varies by more than the hook costs,
so the same is measured with torch's fake backend, which communicates nothing and shows the hook alone.
Goal: at most 2.5 us an operation, 0 disarmed.
"""

import argparse
import os
import random
import socket
import statistics
import tempfile
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch._C._distributed_c10d import HookOpName

from hangdrill.rank.facts import Facts
from hangdrill.rank.faults import Fault
from hangdrill.rank.files import Flags
from hangdrill.rank.groups import HOOK_ID, KnownGroup
from hangdrill.rank.opnames import OpNames
from hangdrill.rank.orders import FaultOrder, Identity, Orders
from hangdrill.rank.places import OperationPlace
from hangdrill.rank.record import Record

MODES = ("no hook", "placebo", "armed", "watching", "disarmed")
FAR_AWAY = 1_000_000_000
GOAL_US = 2.5


class Bench:
    """Two groups, and the hooks that go on and off one of them."""

    def __init__(self, scratch: Path, rank: int, ranks: list[int]) -> None:
        self.bare = dist.new_group(ranks, group_desc="bare")
        self.hooked = dist.new_group(ranks, group_desc="hooked")
        known = KnownGroup(slot=0, name="", desc="hooked", ranks=(0, 1), backend_class="", pg=weakref.ref(self.hooked))
        self.hooks = {
            "armed": make_place(scratch, rank, "none").hooks(known),
            "watching": make_place(scratch, rank, "hold").hooks(known),
        }

    def group(self, mode: str) -> Any:
        """The group of a mode, with that mode's hooks on it."""
        if mode in ("no hook", "placebo"):
            return self.bare
        self.hooked.unregister_pre_hook(HOOK_ID)
        if mode in self.hooks:
            self.hooked.register_pre_hook(HOOK_ID, self.hooks[mode][0])
        return self.hooked


def make_place(scratch: Path, rank: int, kind: str) -> OperationPlace:
    """What makes the hooks of a rank whose fault is far away, or none."""
    names = OpNames({name: int(member) for name, member in HookOpName.__members__.items()})
    fault = FaultOrder(kind=kind, ranks=(rank,), group="hooked", nth=FAR_AWAY)
    orders = Orders(run_id="benchmark", control=scratch, sockets=scratch, fault=fault)
    who = Identity(rank=rank, attempt=0, world_size=2, local_rank=rank)
    return OperationPlace(
        Fault(orders, who, Flags(scratch, rank, who.stem)),
        Record(scratch / f"{kind}.{rank}.ops"),
        names,
        Facts(who, backend="gloo", placement="pre-hook"),
        lambda: None,
    )


def loop_us(group: Any, tensor: Any, operations: int) -> float:
    """Microseconds an operation."""
    began = time.perf_counter_ns()
    for _ in range(operations):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter_ns() - began) / 1000 / operations


def rank_main(rank: int, options: SimpleNamespace) -> None:
    """One rank of one measurement; rank 0 prints."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port), GLOO_SOCKET_IFNAME="lo")
    if options.backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    else:
        dist.init_process_group(options.backend, rank=rank, world_size=2)
    bench = Bench(Path(options.scratch), rank, [0, 1])
    tensor = torch.ones(256)
    for mode in MODES:
        loop_us(bench.group(mode), tensor, 4 * options.operations)  # connections, caches
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    order = random.Random(0)  # the same on both ranks
    for _ in range(options.rounds):
        for mode in order.sample(MODES, len(MODES)):
            found[mode].append(loop_us(bench.group(mode), tensor, options.operations))
    if rank == 0:
        report(options.backend, found)
    if options.backend != "fake":
        dist.barrier()
    os._exit(0)  # torch 2.15 may abort in the teardown of the interpreter: docs/what-torch-does.md


def report(backend: str, found: dict[str, list[float]]) -> None:
    """Medians, and each mode's difference from "no hook" in the same round."""
    print(f"{backend}: all_reduce of 1 KiB, {len(found['no hook'])} rounds", flush=True)
    for mode, times in found.items():
        differences = [one - bare for one, bare in zip(times, found["no hook"], strict=True)]
        low, high = interval(differences)
        difference = f"{statistics.median(differences):+7.2f} us [{low:+.2f}, {high:+.2f}]"
        print(f"  {mode:9} {statistics.median(times):8.2f} us   {difference}", flush=True)


def interval(values: list[float], *, resamples: int = 1000) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(resamples))
    return medians[resamples // 40], medians[-resamples // 40]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--operations", type=int, default=50)
    given = parser.parse_args()
    print(f"torch {torch.__version__}; goal: armed at most +{GOAL_US} us, disarmed +0")
    for backend in ("gloo", "fake"):
        with tempfile.TemporaryDirectory() as scratch:
            options = SimpleNamespace(**vars(given), backend=backend, scratch=scratch, port=free_port())
            multiprocessing.spawn(rank_main, args=(options,), nprocs=1 if backend == "fake" else 2)


if __name__ == "__main__":
    main()
