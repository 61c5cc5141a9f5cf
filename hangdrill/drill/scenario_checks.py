"""The rules across the keys of one scenario: what a single key's type cannot say.

Pure: a Scenario in, the mistakes out. Every rule is a small function in `RULES`; each has its own negative control.
"""

import math
from collections.abc import Callable, Iterator

from hangdrill.delivery.secrets import secret_in
from hangdrill.drill.scenario_bounds import between, in_world
from hangdrill.drill.scenario_fault_checks import FAULT_RULES, P2P
from hangdrill.drill.scenario_kubernetes import kubernetes_mistakes, kubernetes_warnings
from hangdrill.drill.scenario_shape import Problem
from hangdrill.launchers.slurm_script import mistake_in
from hangdrill.model.scenario import (
    TEARDOWNS_OF,
    LauncherName,
    Scenario,
    Teardown,
    Trigger,
    Volume,
    WorkloadName,
)
from hangdrill.model.sizes import parse_size

__all__ = ["mistakes", "warnings"]

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
P2P_WORKLOADS = frozenset({WorkloadName.PIPELINE})


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
    yield from between("job.timeout_s", job.timeout_s, 0.0, MAX_TIMEOUT_S, "s", above=True)
    yield from between("job.steps", job.steps, 1, MAX_STEPS)
    if job.rdzv_backend is not None and not job.on_nodes:
        yield Problem("job.rdzv_backend", "the job is on one host, which meets nobody", "leave it out")
    yield from between("job.max_restarts", job.max_restarts, 0, MAX_RESTARTS)


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


def _image(scenario: Scenario) -> Iterator[Problem]:
    """An image is a container's alone: passed over, the ranks would run on this host."""
    job = scenario.job
    if job.container.image is not None:
        if job.launcher is not LauncherName.CONTAINER:
            what = f"{job.launcher.value} starts no image"
            yield Problem("job.container.image", what, 'use launcher = "container", or leave it out')
        if not job.container.image.strip():
            yield Problem("job.container.image", "the image has no name", 'for instance "registry/train:2.15"')
    if not job.container.python.strip():
        yield Problem("job.container.python", "the Python has no name", 'leave the key out for "python3"')


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
    yield from between("job.queue_s", job.queue_s, 0.0, MAX_QUEUE_S, "s", above=True)


def _world(scenario: Scenario) -> Iterator[Problem]:
    job = scenario.job
    if job.nnodes != 1 and job.contained and job.launcher is not LauncherName.KUBERNETES:
        yield Problem("job.nnodes", f"{job.nnodes} nodes: {job.launcher.value} runs on this host", "use nnodes = 1")
        return
    yield from between("job.nnodes", job.nnodes, 1, MAX_NODES)
    yield from between("job.nproc_per_node", job.nproc_per_node, 2 if job.nnodes == 1 else 1, MAX_RANKS)
    if job.workload is WorkloadName.MESH_2D and job.world_size % 2:
        number = job.nproc_per_node
        yield Problem("job.nproc_per_node", f"mesh-2d needs an even number of ranks, got {number}", f"use {number + 1}")


def _recorder(scenario: Scenario) -> Iterator[Problem]:
    recorder = scenario.recorder
    yield from between("recorder.buffer_size", recorder.buffer_size, 1, MAX_BUFFER, "entries")
    interval_s = recorder.debug_server_interval_s
    yield from between("recorder.debug_server_interval_s", interval_s, 0.0, MAX_TIMEOUT_S, "s", above=True)
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
    yield from between("recorder.deliver_within_s", within_s, 0.0, MAX_TIMEOUT_S, "s", above=True)
    if recorder.keep_days is not None:
        yield from between("recorder.keep_days", recorder.keep_days, 0.0, MAX_KEEP_DAYS, "days", above=True)


def _incident(scenario: Scenario) -> Iterator[Problem]:
    incident = scenario.incident
    if incident.has_hook and scenario.recorder.trigger is not Trigger.COLLECTOR:
        yield Problem("incident", "only the collector calls hooks", 'use trigger = "collector"')
    if incident.command and not incident.command[0].strip():
        yield Problem("incident.command", "the command has no name", 'for instance ["notify.sh", "gpu-oncall"]')
    webhook = incident.webhook
    if webhook is not None and not webhook.startswith(("https://", "http://", "$")):
        yield Problem("incident.webhook", "it is no http:// or https:// URL", 'write the URL, or "$NAME"')
    yield from between("incident.timeout_s", incident.timeout_s, 0.0, MAX_TIMEOUT_S, "s", above=True)


def _expect_ranks(scenario: Scenario) -> Iterator[Problem]:
    expect, world = scenario.expect, scenario.job.world_size
    if expect.culprit is not None and expect.culprits is not None:
        yield Problem("expect.culprits", "expect.culprit is set as well", "keep expect.culprits alone")
    yield from in_world("expect.culprit", expect.expected_culprits or (), world)
    if not isinstance(expect.dumps, str):
        yield from in_world("expect.dumps", expect.dumps, world)
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


RULES: tuple[Callable[[Scenario], Iterator[Problem]], ...] = (
    _job, _volumes, _image, _slurm, _memory, _world, *FAULT_RULES, _recorder, _delivery, _incident, _expect_ranks,
    _expect_within, _expect_survives, kubernetes_mistakes,
)  # fmt: skip
