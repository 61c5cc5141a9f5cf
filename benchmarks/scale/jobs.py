"""Two jobs that never ran, as data: what each rank recorded until the job hung, and who hung it.

`fsdp`: FSDP2 over a mesh of replicas x 8 shards, about 200 operations a step. In a backward pass the culprit does not
enter a reduce_scatter: its seven shard peers wait for it there, all others wait for those in the all_reduce after it.
`pipeline`: eight stages of world/8 ranks, plain sends and receives, then all_reduces inside each stage. The culprit
does not send a micro-batch on: the rest of its column waits, and then every other column, some several links away.
"""

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["FLAVOURS", "Call", "Group", "Job", "culprit_of", "fsdp", "pipeline"]

SIDE = 8  # shards of a replica, stages of a pipeline, ranks of a host
LAYERS = 64
MICRO_BATCHES = 8
BUCKETS = 16


class Group(NamedTuple):
    name: str
    desc: str
    ranks: tuple[int, ...]


class Call(NamedTuple):
    """One operation of a step: in which of the rank's groups, and everything about it that no step changes."""

    group: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    stack: str
    thread: str = "python3"
    p2p: bool = False


class Job(NamedTuple):
    """What one rank did: its groups, its step, how many operations it recorded, and whether it waits in the last."""

    groups: tuple[Group, ...]
    step: tuple[Call, ...]
    recorded: int
    waits: bool


def culprit_of(world_size: int) -> int:
    return world_size // 2 + SIDE // 2 - 1


def mesh_group(dimension: str, ranks: Sequence[int], number: int) -> Group:
    """Meshes of torch 2.15 name their groups by a hash of the members."""
    text = "_".join([*map(str, ranks), str(number)])
    return Group(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), f"mesh_{dimension}", tuple(ranks))


def world(world_size: int) -> Group:
    return Group("0", "default_pg", tuple(range(world_size)))


def fsdp(rank: int, world_size: int, steps: int) -> Job:
    """One rank of the sharded job, hung in the backward pass of the last step."""
    host, column = divmod(rank, SIDE)
    groups = (
        world(world_size),
        mesh_group("replicate", range(column, world_size, SIDE), 1),
        mesh_group("shard", range(host * SIDE, (host + 1) * SIDE), 2),
    )
    step = fsdp_step()
    hang = len(step) * steps + places(step, "reduce_scatter")[24]
    culprit = culprit_of(world_size)
    if rank == culprit:
        return Job(groups, step, hang, waits=False)
    return Job(groups, step, hang + (1 if host == culprit // SIDE else 2), waits=True)


def fsdp_step() -> tuple[Call, ...]:
    """all_gather each layer; backwards reduce_scatter, and all_reduce over the replicas; then the norm and the loss."""
    calls = [
        Call(2, "_all_gather_base", (shard(layer),), (shard(layer) * SIDE,), "all_gather") for layer in range(LAYERS)
    ]
    for layer in reversed(range(LAYERS)):
        size = shard(layer)
        if layer % 8 == 7:
            calls.append(Call(2, "_all_gather_base", (size,), (size * SIDE,), "prefetch", "pt_autograd_0"))
        calls.append(Call(2, "_reduce_scatter_base", (size * SIDE,), (size,), "reduce_scatter", "pt_autograd_0"))
        calls.append(Call(1, "all_reduce", (size,), (size,), "replicate", "pt_autograd_0"))
    calls += [Call(group, "all_reduce", (1,), (1,), "norm") for group in (2, 1)]
    return (*calls, Call(0, "all_reduce", (4,), (4,), "loss"))


def shard(layer: int) -> int:
    """The elements of a layer's shard: a few sizes, as in a model whose layers differ."""
    return 131_328 * (1 + layer % 3) + 64 * (layer // 16)


def pipeline(rank: int, world_size: int, steps: int) -> Job:
    """One rank of the pipelined job, hung in the forward pass of the last step."""
    width = world_size // SIDE
    stage, column = divmod(rank, width)
    groups = (
        world(world_size),
        mesh_group("data", range(stage * width, (stage + 1) * width), 1),
        mesh_group("pipe", range(column, world_size, width), 2),
    )
    step = pipeline_step(stage)
    mid, hung_column = divmod(culprit_of(world_size), width)
    stops = stops_of_stages(mid)
    done = stops[stage] if column == hung_column else places(step, "bucket")[0]
    culprit = (stage, column) == (mid, hung_column)
    return Job(groups, step, len(step) * steps + done + (not culprit), waits=not culprit)


def pipeline_step(stage: int) -> tuple[Call, ...]:
    """All micro-batches forward, then all backward; then the gradients of the stage, and the loss of all."""
    calls = []
    for towards, stack in ((1, "forward"), (-1, "backward")):
        for _ in range(MICRO_BATCHES):
            if 0 <= stage - towards < SIDE:
                calls.append(Call(2, f"recv {stage}<-{stage - towards}", (), (65_536,), f"recv_{stack}", p2p=True))
            if 0 <= stage + towards < SIDE:
                calls.append(Call(2, f"send {stage}->{stage + towards}", (65_536,), (), f"send_{stack}", p2p=True))
    sizes = [65_536 * (1 + bucket % 4) for bucket in range(BUCKETS)]
    calls += [Call(1, "all_reduce", (size,), (size,), "bucket") for size in sizes]
    return (*calls, Call(0, "all_reduce", (4,), (4,), "loss"))


def places(step: Sequence[Call], stack: str) -> list[int]:
    return [at for at, call in enumerate(step) if call.stack == stack]


def stops_of_stages(culprit_stage: int) -> list[int]:
    """How many operations each stage of the culprit's column finished: played, as sends and receives meet in pairs."""
    steps = [pipeline_step(stage) for stage in range(SIDE)]
    limit = [len(step) for step in steps]
    limit[culprit_stage] = places(steps[culprit_stage], "send_forward")[3]
    done = [0] * SIDE
    moved = True
    while moved:
        moved = False
        for low, high in pairwise(range(SIDE)):
            if done[low] == limit[low] or done[high] == limit[high]:
                continue
            meeting = (steps[low][done[low]].name, steps[high][done[high]].name)
            if meeting in (
                (f"send {low}->{high}", f"recv {high}<-{low}"),
                (f"recv {low}<-{high}", f"send {high}->{low}"),
            ):
                done[low] += 1
                done[high] += 1
                moved = True
    return done


FLAVOURS: dict[str, Callable[[int, int, int], Job]] = {"fsdp": fsdp, "pipeline": pipeline}
