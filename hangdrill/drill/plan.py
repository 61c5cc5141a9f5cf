"""Everything that is decided before a drill starts, as one frozen value: what `run` does and `show` prints.

It starts nothing and writes nothing. Times in `deadlines` are upper bounds of waits, not expectations.
"""

import os
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from hangdrill.delivery import DeliveryOptions, longest_s
from hangdrill.drill.launching import launcher_for, missing_launcher
from hangdrill.drill.layout import RunLayout
from hangdrill.drill.lock import resources_of
from hangdrill.drill.orders import AgentOrders, agent_orders
from hangdrill.drill.procfs import CONTROLLER_VARIABLE, RUN_ID_VARIABLE, own_id
from hangdrill.launchers.box import find_mounted, mounted_volumes
from hangdrill.launchers.protocol import LaunchRequest
from hangdrill.model.errors import UsageError
from hangdrill.model.scenario import FaultKind, Job, LauncherName, Scenario, Trigger, Volume
from hangdrill.model.sizes import parse_size

__all__ = [
    "Deadlines",
    "Plan",
    "collector_words",
    "delivery_of",
    "dump_place",
    "is_healthy",
    "launch_request",
    "launcher_for",
    "makes_dump_dir",
    "missing_launcher",
    "new_run_id",
    "plan_drill",
    "stall_after_s",
]

COLLECTOR_S = 5.0
CONTROLLER_MARKS = (RUN_ID_VARIABLE, CONTROLLER_VARIABLE)
"""By these variables a process of the drill is known as its own."""
STALL_PART_WITH_A_FAULT, STALL_PART = 0.6, 0.8
"""Of the group's timeout. A confirmed fault may be looked at early; a negative control is watched as a real job is."""
PREFIX_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_OF_OUTER_JOBS = ("TORCHELASTIC_", "PET_")
_OF_RANKS = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
}  # fmt: skip


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """The longest that each wait may take."""

    lock_s: float = 900.0
    steady_s: float = 240.0
    """Importing torch in all ranks from a cold disk, and the first operations."""
    confirm_s: float = 300.0
    within_s: float
    """From the confirmed fault to the last dump: notice and collection together."""
    healthy_s: float
    """A job without a hang ends by itself within this."""
    restart_s: float
    nodes_s: float = 300.0
    """Every host of a job on several has come: people start the others by hand."""
    collector_s: float = COLLECTOR_S
    """The collector finishes after the job has ended, and delivers what is left to deliver."""
    int_s: float = 0.2
    term_s: float = 0.5
    kill_s: float = 10.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One drill, decided. `environment` is what is set on top of the caller's; `cwd` is the job's."""

    schema: Literal["hangdrill.plan/1"] = "hangdrill.plan/1"
    name: str
    run_id: str
    scenario: Scenario
    uid: int
    created_ns: int
    run_dir: str
    python: str
    target: str
    target_args: tuple[str, ...]
    command: tuple[str, ...]
    collector_command: tuple[str, ...]
    cwd: str
    environment: dict[str, str]
    orders: AgentOrders
    dump_prefix: str
    expected_ranks: tuple[int, ...]
    resources: tuple[str, ...]
    deadlines: Deadlines


def new_run_id() -> str:
    """An id that no other drill has."""
    return f"hd-{uuid.uuid4().hex[:12]}"


def is_healthy(scenario: Scenario) -> bool:
    """Whether the job should end by itself, without a hang."""
    return scenario.fault.kind in {FaultKind.NONE, FaultKind.SLOW}


def stall_after_s(scenario: Scenario) -> float:
    """How long an operation may be pending before the collector looks."""
    part = STALL_PART if is_healthy(scenario) else STALL_PART_WITH_A_FAULT
    return round(part * scenario.job.timeout_s, 3)


def plan_drill(
    scenario: Scenario, *, name: str, run_dir: Path, python: str, environ: Mapping[str, str], run_id: str
) -> Plan:
    """Decide everything. UsageError when this version has no such launcher."""
    layout = RunLayout(run_dir.absolute())
    prefix = _dump_prefix(scenario, layout)
    within_s = scenario.expect.within_s or 3 * scenario.job.timeout_s + 10
    target, target_args = _target(scenario)
    plan = Plan(
        name=name,
        run_id=run_id,
        scenario=scenario,
        uid=os.getuid(),
        created_ns=time.time_ns(),
        run_dir=str(layout.root),
        python=python,
        target=target,
        target_args=target_args,
        command=(),
        collector_command=(),
        cwd=str(Path.cwd()) if scenario.job.script is not None else str(layout.root),
        environment=_environment(scenario, layout, prefix, run_id, environ),
        orders=agent_orders(scenario, run_id=run_id, control=layout.control, sockets=layout.sockets, within_s=within_s),
        dump_prefix=prefix,
        expected_ranks=tuple(range(scenario.job.world_size)),
        resources=resources_of(scenario),
        deadlines=Deadlines(
            within_s=within_s,
            healthy_s=3 * scenario.job.timeout_s + 60,
            restart_s=scenario.job.timeout_s + 45,
            collector_s=COLLECTOR_S + longest_s(delivery_of(scenario)),
        ),
    )
    return msgspec.structs.replace(
        plan,
        command=launcher_for(scenario).command(launch_request(plan, environ)),
        collector_command=_collector_command(plan, layout),
    )


def dump_place(plan: Plan, path: str) -> Path | None:
    """Where this host keeps what the job calls `path`; None when that is in the container's own layer, or when it is a
    node's of a scheduler."""
    if plan.scenario.job.launcher is LauncherName.SLURM:
        return Path(path) if Path(path).is_relative_to(plan.run_dir) else None
    if not plan.scenario.job.contained:
        return Path(path)
    layout = RunLayout(Path(plan.run_dir))
    if Path(path).is_relative_to(layout.native):
        return Path(path)
    return find_mounted(mounted_volumes(_volumes(plan.scenario.job), plan.run_dir), path)


def makes_dump_dir(scenario: Scenario) -> bool:
    """Whether hangdrill makes the directory of native dumps. Not where the scenario sets torch's own variable: then it
    is as it would be for a job without hangdrill, and torch makes none."""
    return not any(variable in scenario.job.env for variable in PREFIX_VARIABLES)


def launch_request(plan: Plan, environ: Mapping[str, str]) -> LaunchRequest:
    """What the launcher needs; the job gets the caller's environment without the traces of an outer job."""
    job = plan.scenario.job
    inherited = {
        key: value for key, value in environ.items() if key not in _OF_RANKS and not key.startswith(_OF_OUTER_JOBS)
    }
    return LaunchRequest(
        run_id=plan.run_id,
        python=plan.python,
        nnodes=job.nnodes,
        nproc_per_node=job.nproc_per_node,
        max_restarts=job.max_restarts,
        rendezvous=job.rendezvous,
        target=plan.target,
        args=plan.target_args,
        environ={**inherited, **plan.environment},
        cwd=plan.cwd,
        log_path=str(RunLayout(Path(plan.run_dir)).job_log),
        run_dir=plan.run_dir,
        dump_dir=str(Path(plan.dump_prefix).parent) if makes_dump_dir(plan.scenario) else "",
        sbatch=job.sbatch,
        limit_s=_limit_s(plan.deadlines, restarts=job.max_restarts),
        volumes=_volumes(job),
        set_environ=plan.environment,
        collector=plan.collector_command if job.launcher is LauncherName.KUBERNETES else (),
        memory_bytes=None if job.memory is None else parse_size(job.memory),
        log_dir=str(RunLayout(Path(plan.run_dir)).torchrun_logs) if job.launcher is LauncherName.TORCHRUN else "",
    )


def _limit_s(deadlines: Deadlines, *, restarts: int) -> float:
    """By when the drill is over, however it goes: from the job's start to its last process."""
    waits_s = deadlines.nodes_s + deadlines.steady_s + deadlines.confirm_s + deadlines.restart_s * (restarts > 0)
    return waits_s + max(deadlines.within_s, deadlines.healthy_s) + deadlines.collector_s + 3 * deadlines.kill_s


def _volumes(job: Job) -> tuple[Volume, ...]:
    return tuple(Volume.parse(text) for text in job.volumes)


def _target(scenario: Scenario) -> tuple[str, tuple[str, ...]]:
    job = scenario.job
    if job.script is not None:
        return job.script, job.args
    if job.workload is None:
        raise UsageError("a job needs a workload or a script", where="job", next_step='set workload = "ddp"')
    args = ("--steps", str(job.steps), "--timeout-s", f"{job.timeout_s:g}", "--backend", job.backend)
    return f"workload:{job.workload.value}", (*args, *job.args)


def _environment(
    scenario: Scenario, layout: RunLayout, dump_prefix: str, run_id: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """What the drill sets. The scenario's `job.env` wins over the defaults, and never over what hangdrill lives by."""
    size = str(scenario.recorder.buffer_size)
    python_path = [str(layout.agent_path), scenario.job.env.get("PYTHONPATH", environ.get("PYTHONPATH", ""))]
    defaults = {
        "OMP_NUM_THREADS": environ.get("OMP_NUM_THREADS", "1"),
        "TORCH_FR_BUFFER_SIZE": size,
        "TORCH_NCCL_TRACE_BUFFER_SIZE": size,
        "TORCH_FR_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": dump_prefix,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": dump_prefix,
        "PYTHONUNBUFFERED": "1",
    }
    if "GLOO_SOCKET_IFNAME" in environ or not scenario.job.on_nodes:  # else each host has its own interface
        defaults["GLOO_SOCKET_IFNAME"] = environ.get("GLOO_SOCKET_IFNAME", "lo")
    if scenario.fault.kind is FaultKind.STORE_DEATH:  # else torchrun itself hosts the store, and no rank can end it
        defaults["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    needed = {
        "HANGDRILL_AGENT": str(layout.agent_orders),
        RUN_ID_VARIABLE: run_id,
        CONTROLLER_VARIABLE: "{}:{}".format(*own_id()),
        "PYTHONPATH": os.pathsep.join(part for part in python_path if part),
    }
    return {**defaults, **scenario.job.env, **needed}


def _dump_prefix(scenario: Scenario, layout: RunLayout) -> str:
    """Where torch writes rank r's dump is this plus r."""
    for variable in PREFIX_VARIABLES:
        if variable in scenario.job.env:
            return scenario.job.env[variable]
    directory = layout.native if scenario.recorder.dump_to is None else Path(scenario.recorder.dump_to).absolute()
    return str(directory / "fr_")


def _collector_command(plan: Plan, layout: RunLayout) -> tuple[str, ...]:
    """Empty for the roads that show what torch does alone. On nodes, each node process adds its own directories."""
    scenario = plan.scenario
    if scenario.recorder.trigger is not Trigger.COLLECTOR:
        return ()
    if scenario.job.on_nodes:
        own = {
            "--run-id": plan.run_id,
            "--backend": scenario.job.backend,
            "--stall-after-s": str(stall_after_s(scenario)),
            "--native-prefix": plan.dump_prefix,
            **_delivery_words(plan, layout),
        }
        return (sys.executable, "-m", "hangdrill.collector", *(part for option in own.items() for part in option))
    options = {
        "--sockets": str(layout.sockets),
        "--control": str(layout.control),
        "--to": str(layout.evidence),
        "--run-id": plan.run_id,
        "--world-size": str(scenario.job.world_size),
        "--backend": scenario.job.backend,
        "--stall-after-s": str(stall_after_s(scenario)),
        **_delivery_words(plan, layout),
    }
    if scenario.job.launcher is LauncherName.KUBERNETES:
        return _sidecar_command(plan, layout, options)
    options["--parent-pid"] = str(os.getpid())
    native = dump_place(plan, plan.dump_prefix)
    if native is not None:
        options["--native-prefix"] = str(native)
    flags = ("--contained",) if scenario.job.contained else ()
    words = (part for option in options.items() for part in option)
    return (sys.executable, "-m", "hangdrill.collector", *words, *flags)


def delivery_of(scenario: Scenario) -> DeliveryOptions:
    """What the collector delivers, and whom it tells."""
    url = scenario.recorder.deliver_to
    if url is not None and "://" not in url:
        url = str(Path(url).absolute())
    return DeliveryOptions(url=url, within_s=scenario.recorder.deliver_within_s, incident=scenario.incident)


def _delivery_words(plan: Plan, layout: RunLayout) -> dict[str, str]:
    """Hooks are in a file, for a webhook's URL is a secret."""
    options = delivery_of(plan.scenario)
    words = {"--job": plan.name, "--started-ns": str(plan.created_ns)} if options.wanted else {}
    if options.url is not None:
        words |= {"--deliver-to": options.url, "--deliver-within-s": f"{options.within_s:g}"}
    return words | ({"--incident": str(layout.hooks)} if options.incident.has_hook else {})


def collector_words(plan: Plan, node: int) -> tuple[str, ...]:
    """The collector's command on a node, without its interpreter. One host calls the hooks: a hang is one incident.
    Hosts may have the same name, so the node is in the one under which its evidence is delivered."""
    words = list(plan.collector_command[1:])
    if "--deliver-to" in words:
        words += ["--host", f"{socket.gethostname()}.node{node}"]
    if node != 0 and "--incident" in words:
        at = words.index("--incident")
        del words[at : at + 2]
    return tuple(words)


def _sidecar_command(plan: Plan, layout: RunLayout, options: dict[str, str]) -> tuple[str, ...]:
    """In the ranks' pod: it shares their pids and their volumes, and has no parent to follow."""
    job = plan.scenario.job
    on_volume = job.volume_of(plan.dump_prefix) is not None or job.kubernetes.empty_dir_of(plan.dump_prefix) is not None
    if on_volume or dump_place(plan, plan.dump_prefix) is not None:
        options["--native-prefix"] = plan.dump_prefix
    python = sys.executable if job.kubernetes.engine == "podman" else job.kubernetes.python
    own = ("--log", str(layout.collector_log), "--exit-file", str(layout.collector_exit), "--")
    words = (part for option in options.items() for part in option)
    return (python, "-m", "hangdrill.collector.sidecar", *own, *words)
