"""The rules of a scenario's fault: its kind, on whom and where. Pure; each rule has its own negative control."""

import re
from collections.abc import Callable, Iterator

from hangdrill.drill.scenario_bounds import in_world
from hangdrill.drill.scenario_shape import Problem, nearest
from hangdrill.model.scenario import (
    LINK_FAULTS,
    FaultKind,
    Scenario,
)

__all__ = ["FAULT_RULES", "OPERATIONS", "P2P"]

P2P = ("send", "recv", "isend", "irecv")
OPERATIONS = (
    *P2P, "all_gather", "all_gather_into_tensor", "all_reduce", "all_reduce_coalesced", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "gather", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter",
)  # fmt: skip
"""What `fault.before.op` may name: the functions of torch.distributed."""

STALL_FRACTION = 0.8
"""The collector calls a hang at this part of the timeout; a slow rank must stay below it."""

OWN_PLACE = frozenset({FaultKind.IN_DESTROY, FaultKind.DATALOADER})
"""Placed where their kind belongs when the scenario does not say."""
NEEDS_OPERATION = frozenset({FaultKind.SKIP, FaultKind.WRONG_OP, FaultKind.WRONG_SHAPE, FaultKind.WRONG_DTYPE})
TENSOR_FAULTS = frozenset({FaultKind.WRONG_SHAPE, FaultKind.WRONG_DTYPE})
GPU_FAULTS = frozenset({FaultKind.GPU_KERNEL, FaultKind.OOM})
STORE_RANK = 0
"""Where the store lives when torchrun does not host it."""
INTERFACE = re.compile(r"[^\s/]{1,15}")
STEP = re.compile(r"step:([1-9]\d*)")


def _fault_ranks(scenario: Scenario) -> Iterator[Problem]:
    fault = scenario.fault
    if fault.kind is FaultKind.NONE:
        if fault.targets:
            yield Problem("fault.ranks", "ranks, and no fault to place on them", "set fault.kind")
        return
    if fault.on_host:
        if fault.targets:
            yield Problem("fault.ranks", f"{fault.kind.value} is placed on a host, on no rank", "use fault.node")
        return
    if not fault.targets:
        yield Problem("fault.rank", f"{fault.kind.value} is placed on no rank", "set fault.rank or fault.ranks")
    if fault.rank is not None and fault.ranks:
        yield Problem("fault.ranks", "both fault.rank and fault.ranks are set", "keep fault.ranks alone")
    yield from in_world("fault.rank", fault.targets, scenario.job.world_size)
    if len(fault.targets) == scenario.job.world_size:
        yield Problem("fault.ranks", "every rank gets the fault, so none is left to wait", "leave one rank out")


def _fault_place(scenario: Scenario) -> Iterator[Problem]:
    fault = scenario.fault
    given = [name for name in ("before", "at") if getattr(fault, name) is not None]
    if fault.kind is FaultKind.NONE:
        yield from (Problem(f"fault.{name}", "a place, and no fault to put there", "set fault.kind") for name in given)
    elif len(given) == 2:
        yield Problem("fault.at", "both fault.before and fault.at are set", "keep one: the fault has one place")
    elif not given and fault.kind not in OWN_PLACE:
        hint = 'for instance before = { op = "all_reduce", nth = 4 } or at = "step:3"'
        yield Problem("fault.before", f"{fault.kind.value} has no place", hint)
    elif fault.kind in NEEDS_OPERATION and fault.before is None:
        yield Problem("fault.at", f"{fault.kind.value} changes an operation, so it needs one", "use fault.before")
    elif fault.on_host and (fault.before is not None or not STEP.fullmatch(fault.at or "")):
        yield Problem(f"fault.{given[0]}", "a fault of a host is placed at a step", 'for instance at = "step:3"')
    elif fault.kind is FaultKind.DATALOADER and given and fault.at != "dataloader":
        yield Problem(f"fault.{given[0]}", "this fault is always in a worker of the DataLoader", "leave the place out")
    elif fault.kind is FaultKind.IN_DESTROY and fault.at in ("init", "dataloader"):
        yield Problem("fault.at", f"there is nothing to destroy at {fault.at}", 'use before, "step:3" or "destroy"')


def _fault_host(scenario: Scenario) -> Iterator[Problem]:
    """A fault of a host, and where it is placed."""
    fault, job, kind = scenario.fault, scenario.job, scenario.fault.kind.value
    if not fault.on_host:
        given = [name for name in ("node", "interface") if getattr(fault, name) is not None]
        for name in given:
            yield Problem(f"fault.{name}", f"{kind} is placed on ranks, on no host", 'for instance kind = "link-down"')
        return
    if not job.on_nodes or job.nnodes < 2:
        hint = 'use launcher = "torchrun" or "slurm" with nnodes = 2'
        yield Problem("fault.kind", f"{kind} is a fault between hosts, and the job is on one", hint)
        return
    if fault.node is None and fault.kind is not FaultKind.HOST_DEATH:
        yield Problem("fault.node", f"{kind} is placed on no host", f"use a number from 0 to {job.nnodes - 1}")
    if not 0 <= fault.host_node < job.nnodes:
        hint = f"use a number from 0 to {job.nnodes - 1}"
        yield Problem("fault.node", f"node {fault.node} is outside the {job.nnodes} nodes", hint)
    if fault.interface is None and fault.kind in LINK_FAULTS:
        yield Problem("fault.interface", f"{kind} needs the interface that it may cut", 'for instance "eth0"')
    if fault.interface is not None and fault.kind is FaultKind.AGENT_KILL:
        yield Problem("fault.interface", "agent-kill touches no network", "leave it out")
    if fault.interface is not None and not INTERFACE.fullmatch(fault.interface):
        yield Problem("fault.interface", f'"{fault.interface}" is no name of an interface', 'for instance "eth0"')


def _fault_kind(scenario: Scenario) -> Iterator[Problem]:
    fault, job = scenario.fault, scenario.job
    if fault.kind in GPU_FAULTS and job.backend == "gloo":
        yield Problem(
            "fault.kind", f"{fault.kind.value} needs a GPU, and gloo's ranks use none", 'use backend = "nccl"'
        )
    if fault.kind is FaultKind.STORE_DEATH and fault.targets and fault.targets != (STORE_RANK,):
        yield Problem("fault.rank", "the store lives on rank 0, so only that rank can take it along", "use rank = 0")


def _fault_at(scenario: Scenario) -> Iterator[Problem]:
    at, job = scenario.fault.at, scenario.job
    if at is None:
        return
    step = STEP.fullmatch(at)
    if step is None and at not in ("init", "destroy", "dataloader"):
        yield Problem("fault.at", f'unknown value "{at}"', nearest(at, ["init", "step:1", "destroy", "dataloader"]))
    elif step and job.workload and int(step[1]) > job.steps:
        yield Problem("fault.at", f"step {step[1]} never comes: the job has {job.steps} steps", "raise job.steps")


def _fault_before(scenario: Scenario) -> Iterator[Problem]:
    fault, before = scenario.fault, scenario.fault.before
    if before is None:
        return
    if before.op is not None and before.op not in OPERATIONS:
        yield Problem("fault.before.op", f'unknown operation "{before.op}"', nearest(before.op, OPERATIONS))
    if before.nth < 1:
        yield Problem("fault.before.nth", f"operations are counted from 1, got {before.nth}", "use nth = 1 or more")
    if before.op == "barrier" and fault.kind in TENSOR_FAULTS:
        yield Problem("fault.before.op", f"a barrier has no tensor for {fault.kind.value}", "use another operation")
    if isinstance(before.group, str):
        if not before.group:
            yield Problem("fault.before.group", "the group has no name", 'for instance "default_pg"')
        return
    yield from in_world("fault.before.group", before.group, scenario.job.world_size)
    if outside := sorted(set(fault.targets) - set(before.group)):
        yield Problem("fault.before.group", f"rank {outside[0]} is no member of the group", "add it, or move the fault")


def _fault_delay(scenario: Scenario) -> Iterator[Problem]:
    fault, limit_s = scenario.fault, STALL_FRACTION * scenario.job.timeout_s
    if fault.delay_s is None:
        return
    if fault.kind is not FaultKind.SLOW:
        yield Problem("fault.delay_s", f"{fault.kind.value} has no delay", 'only kind = "slow" has one')
    elif not 0 < fault.delay_s < limit_s:
        what = f"a slow rank is no hang, so its delay must lie between 0 and {limit_s:g} s, got {fault.delay_s:g}"
        yield Problem("fault.delay_s", what, f"use {0.3 * scenario.job.timeout_s:g}, or raise job.timeout_s")


FAULT_RULES: tuple[Callable[[Scenario], Iterator[Problem]], ...] = (
    _fault_kind, _fault_host, _fault_ranks, _fault_place, _fault_at, _fault_before, _fault_delay,
)  # fmt: skip
