"""The rules across the keys of one scenario: what a single key's type cannot say.

Pure: a Scenario in, the mistakes out. Every rule is a small function in `RULES`; each has its own negative control.
"""

import math
import re
from collections.abc import Callable, Iterator

from hangdrill.delivery.secrets import secret_in
from hangdrill.drill.scenario_kubernetes import kubernetes_mistakes, kubernetes_warnings
from hangdrill.drill.scenario_shape import Problem, nearest
from hangdrill.launchers.slurm_script import mistake_in
from hangdrill.model.scenario import (
    LINK_FAULTS,
    TEARDOWNS_OF,
    FaultKind,
    LauncherName,
    Scenario,
    Teardown,
    Trigger,
    Volume,
    WorkloadName,
)
from hangdrill.model.sizes import parse_size

__all__ = ["OPERATIONS", "mistakes", "warnings"]

P2P = ("send", "recv", "isend", "irecv")
OPERATIONS = (
    *P2P, "all_gather", "all_gather_into_tensor", "all_reduce", "all_reduce_coalesced", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "gather", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter",
)  # fmt: skip
"""What `fault.before.op` may name: the functions of torch.distributed."""

MAX_RANKS = 64
MAX_NODES = 64
MAX_TIMEOUT_S = 3600.0
MAX_STEPS = 1_000_000
MAX_RESTARTS = 10
MAX_QUEUE_S = 7 * 86400.0
MAX_BUFFER = 1_000_000
MAX_KEEP_DAYS = 36_500.0
LEAST_MEMORY_OF_A_PROCESS = 256 << 20
"""torch for CPU takes some 220 MiB of a process, before it does anything."""
STALL_FRACTION = 0.8
"""The collector calls a hang at this part of the timeout; a slow rank must stay below it."""

OWN_PLACE = frozenset({FaultKind.IN_DESTROY, FaultKind.DATALOADER})
"""Placed where their kind belongs when the scenario does not say."""
NEEDS_OPERATION = frozenset({FaultKind.SKIP, FaultKind.WRONG_OP, FaultKind.WRONG_SHAPE, FaultKind.WRONG_DTYPE})
TENSOR_FAULTS = frozenset({FaultKind.WRONG_SHAPE, FaultKind.WRONG_DTYPE})
P2P_WORKLOADS = frozenset({WorkloadName.PIPELINE})
GPU_FAULTS = frozenset({FaultKind.GPU_KERNEL, FaultKind.OOM})
STORE_RANK = 0
"""Where the store lives when torchrun does not host it."""
INTERFACE = re.compile(r"[^\s/]{1,15}")
STEP = re.compile(r"step:([1-9]\d*)")


def mistakes(scenario: Scenario) -> list[Problem]:
    """Every rule that the scenario breaks, in the order of the keys."""
    return [problem for rule in RULES for problem in rule(scenario)]


def warnings(scenario: Scenario) -> tuple[str, ...]:
    """What is allowed and probably not meant."""
    return (*_warnings(scenario), *kubernetes_warnings(scenario))


def _warnings(scenario: Scenario) -> Iterator[str]:
    before, job = scenario.fault.before, scenario.job
    if before is not None and before.op in P2P and job.workload and job.workload not in P2P_WORKLOADS:
        yield f"fault.before.op: {job.workload.value} sends nothing point to point, so {before.op} never comes"
    alone = scenario.recorder.trigger is Trigger.NATIVE and job.backend == "gloo"
    if alone and job.script is None and scenario.expect.dumps != "none":  # a script may write dumps itself
        yield "recorder.trigger: gloo writes no dump by itself, so this drill fails (that is what it shows)"
    if _goes_with_the_container(scenario):
        yield f"recorder.dump_to: {scenario.recorder.dump_to} is the container's own, and goes with it"


def _goes_with_the_container(scenario: Scenario) -> bool:
    """Whether the native dumps are to survive their container, and lie in its own layer."""
    job, recorder = scenario.job, scenario.recorder
    if recorder.dump_to is not None and job.kubernetes.empty_dir_of(recorder.dump_to) is not None:
        return False
    ends_container = {Teardown.CONTAINER_REMOVAL, Teardown.POD_DELETION} & set(scenario.expect.survives)
    asked = bool(ends_container) and recorder.trigger is not Trigger.COLLECTOR
    return asked and recorder.dump_to is not None and not job.is_on_a_volume(recorder.dump_to)


def _job(scenario: Scenario) -> Iterator[Problem]:
    job = scenario.job
    if (job.workload is None) == (job.script is None):
        which = "neither a workload nor a script" if job.workload is None else "both a workload and a script"
        yield Problem("job.workload", f"the job has {which}", "set exactly one of job.workload and job.script")
    if not job.backend.strip():
        yield Problem("job.backend", "the backend has no name", 'for instance "gloo"')
    yield from _between("job.timeout_s", job.timeout_s, 0.0, MAX_TIMEOUT_S, "s", above=True)
    yield from _between("job.steps", job.steps, 1, MAX_STEPS)
    if job.rdzv_backend is not None and not job.on_nodes:
        yield Problem("job.rdzv_backend", "the job is on one host, which meets nobody", "leave it out")
    yield from _between("job.max_restarts", job.max_restarts, 0, MAX_RESTARTS)


def _volumes(scenario: Scenario) -> Iterator[Problem]:
    job = scenario.job
    if job.volumes and not job.contained:
        yield Problem("job.volumes", f"{job.launcher.value} starts no container", 'use launcher = "bwrap"')
    targets: list[str] = []
    for text in job.volumes:
        try:
            targets.append(Volume.parse(text).target)
        except ValueError as error:
            yield Problem("job.volumes", f'"{text}": {error}', 'for instance "dumps:/mnt/dumps"')
    if twice := sorted({target for target in targets if targets.count(target) > 1}):
        yield Problem("job.volumes", f"two volumes have the target {twice[0]}", "give each its own")


def _memory(scenario: Scenario) -> Iterator[Problem]:
    """A container's limit; and oom-kill, which drives a container over it."""
    job = scenario.job
    needs_limit = Teardown.OOM_KILL in scenario.expect.survives and job.launcher in TEARDOWNS_OF[Teardown.OOM_KILL]
    if job.memory is None:
        if needs_limit:
            yield Problem("expect.survives", "oom-kill needs a container with a memory limit", 'set job.memory = "2g"')
        return
    if job.launcher is not LauncherName.CONTAINER:
        what = f"{job.launcher.value} sets no memory limit"
        yield Problem("job.memory", what, 'use launcher = "container", or leave it out')
    try:
        limit_bytes = parse_size(job.memory)
    except ValueError as error:
        yield Problem("job.memory", str(error), 'for instance "2g"')
        return
    least_bytes = LEAST_MEMORY_OF_A_PROCESS * (job.nproc_per_node + 1)
    if limit_bytes < least_bytes:
        what = f"{job.memory} is less than {job.nproc_per_node} ranks and torchrun need to import torch"
        yield Problem("job.memory", what, f'use "{-(-least_bytes >> 20)}m" or more')


def _slurm(scenario: Scenario) -> Iterator[Problem]:
    job = scenario.job
    if job.sbatch and job.launcher is not LauncherName.SLURM:
        yield Problem("job.sbatch", f"{job.launcher.value} submits no batch job", 'use launcher = "slurm"')
    for option in job.sbatch:
        if mistake := mistake_in(option):
            yield Problem("job.sbatch", f'"{option}": {mistake}', 'for instance "--partition=gpu"')
    yield from _between("job.queue_s", job.queue_s, 0.0, MAX_QUEUE_S, "s", above=True)


def _world(scenario: Scenario) -> Iterator[Problem]:
    job = scenario.job
    if job.nnodes != 1 and job.contained and job.launcher is not LauncherName.KUBERNETES:
        yield Problem("job.nnodes", f"{job.nnodes} nodes: {job.launcher.value} runs on this host", "use nnodes = 1")
        return
    yield from _between("job.nnodes", job.nnodes, 1, MAX_NODES)
    yield from _between("job.nproc_per_node", job.nproc_per_node, 2 if job.nnodes == 1 else 1, MAX_RANKS)
    if job.workload is WorkloadName.MESH_2D and job.world_size % 2:
        number = job.nproc_per_node
        yield Problem("job.nproc_per_node", f"mesh-2d needs an even number of ranks, got {number}", f"use {number + 1}")


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
    yield from _in_world("fault.rank", fault.targets, scenario.job.world_size)
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
    yield from _in_world("fault.before.group", before.group, scenario.job.world_size)
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


def _recorder(scenario: Scenario) -> Iterator[Problem]:
    recorder = scenario.recorder
    yield from _between("recorder.buffer_size", recorder.buffer_size, 1, MAX_BUFFER, "entries")
    interval_s = recorder.debug_server_interval_s
    yield from _between("recorder.debug_server_interval_s", interval_s, 0.0, MAX_TIMEOUT_S, "s", above=True)
    if recorder.dump_to == "":
        yield Problem("recorder.dump_to", "the directory has no name", "leave the key out for the run directory")


def _delivery(scenario: Scenario) -> Iterator[Problem]:
    recorder = scenario.recorder
    if recorder.deliver_to is not None:
        if recorder.trigger is not Trigger.COLLECTOR:
            what = "only the collector delivers"
            yield Problem("recorder.deliver_to", what, 'use trigger = "collector", or leave deliver_to out')
        if not recorder.deliver_to.strip():
            yield Problem("recorder.deliver_to", "the target has no name", "for instance s3://bucket/prefix")
        if secret := secret_in(recorder.deliver_to):
            what = f"the URL holds {secret}, which would be stored with every run"
            yield Problem("recorder.deliver_to", what, "give it in the environment (docs/delivery.md)")
    within_s = recorder.deliver_within_s
    yield from _between("recorder.deliver_within_s", within_s, 0.0, MAX_TIMEOUT_S, "s", above=True)
    if recorder.keep_days is not None:
        yield from _between("recorder.keep_days", recorder.keep_days, 0.0, MAX_KEEP_DAYS, "days", above=True)


def _incident(scenario: Scenario) -> Iterator[Problem]:
    incident = scenario.incident
    if incident.has_hook and scenario.recorder.trigger is not Trigger.COLLECTOR:
        yield Problem("incident", "only the collector calls hooks", 'use trigger = "collector"')
    if incident.command and not incident.command[0].strip():
        yield Problem("incident.command", "the command has no name", 'for instance ["notify.sh", "gpu-oncall"]')
    webhook = incident.webhook
    if webhook is not None and not webhook.startswith(("https://", "http://", "$")):
        yield Problem("incident.webhook", "it is no http:// or https:// URL", 'write the URL, or "$NAME"')
    yield from _between("incident.timeout_s", incident.timeout_s, 0.0, MAX_TIMEOUT_S, "s", above=True)


def _expect_ranks(scenario: Scenario) -> Iterator[Problem]:
    expect, world = scenario.expect, scenario.job.world_size
    if expect.culprit is not None and expect.culprits is not None:
        yield Problem("expect.culprits", "expect.culprit is set as well", "keep expect.culprits alone")
    yield from _in_world("expect.culprit", expect.expected_culprits or (), world)
    if not isinstance(expect.dumps, str):
        yield from _in_world("expect.dumps", expect.dumps, world)
        if len(set(expect.dumps)) != len(expect.dumps):
            yield Problem("expect.dumps", "a rank is named twice", "name each rank once")
    if expect.expected_culprits == () and expect.kind is not None:
        yield Problem("expect.kind", "no culprit is expected, and yet a kind of hang", "leave expect.kind out")


def _expect_within(scenario: Scenario) -> Iterator[Problem]:
    within_s, timeout_s = scenario.expect.within_s, scenario.job.timeout_s
    if within_s is None:
        return
    if not math.isfinite(within_s):
        yield Problem("expect.within_s", "it must be a finite number", f"use {3 * timeout_s + 10:g}")
    elif within_s < timeout_s:
        what = f"{within_s:g} s is shorter than the timeout of {timeout_s:g} s, so no dump can come in time"
        yield Problem("expect.within_s", what, f"use at least {timeout_s:g}; the default is {3 * timeout_s + 10:g}")


def _expect_survives(scenario: Scenario) -> Iterator[Problem]:
    job = scenario.job
    for teardown in scenario.expect.survives:
        if job.launcher not in TEARDOWNS_OF[teardown]:
            able = " or ".join(f'"{name.value}"' for name in LauncherName if name in TEARDOWNS_OF[teardown])
            what = f"{job.launcher.value} cannot put a job through {teardown.value}"
            yield Problem("expect.survives", what, f"use launcher = {able}, or leave {teardown.value} out")
        elif teardown is Teardown.HOST_LOSS and job.nnodes < 2:
            yield Problem("expect.survives", "a job on one host survives no loss of it", "set job.nnodes = 2")
    if Teardown.RESTART in scenario.expect.survives and scenario.job.max_restarts < 1:
        yield Problem("expect.survives", "the job has no restart to survive", "set job.max_restarts = 1")


def _in_world(key: str, ranks: tuple[int, ...], world: int) -> Iterator[Problem]:
    for rank in ranks:
        if not 0 <= rank < world:
            yield Problem(key, f"rank {rank} is outside the world of {world}", f"use a rank from 0 to {world - 1}")


def _between(
    key: str, value: float, low: float, high: float, unit: str = "", *, above: bool = False
) -> Iterator[Problem]:
    """low <= value <= high, or low < value when `above`; nan lies outside."""
    if not (low < value if above else low <= value) or not value <= high:
        words = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        yield Problem(key, f"{value:g} is out of bounds", f"use a number {words} {unit}".rstrip())


RULES: tuple[Callable[[Scenario], Iterator[Problem]], ...] = (
    _job, _volumes, _slurm, _memory, _world, _fault_kind, _fault_host, _fault_ranks, _fault_place, _fault_at,
    _fault_before, _fault_delay, _recorder, _delivery, _incident, _expect_ranks, _expect_within, _expect_survives,
    kubernetes_mistakes,
)  # fmt: skip
