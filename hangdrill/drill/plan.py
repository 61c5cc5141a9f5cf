"""Everything that is decided before a drill starts, as one frozen value: what `run` does and `show` prints.

It starts nothing and writes nothing. Times in `deadlines` are upper bounds of waits, not expectations.
"""

import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hangdrill.delivery import longest_s
from hangdrill.drill.collector_command import collector_command, delivery_of
from hangdrill.drill.launching import launcher_for, missing_launcher
from hangdrill.drill.layout import RunLayout
from hangdrill.drill.lock import resources_of
from hangdrill.drill.orders import agent_orders
from hangdrill.drill.plan_values import COLLECTOR_S, Deadlines, Plan, volumes_of
from hangdrill.drill.procfs import CONTROLLER_VARIABLE, RUN_ID_VARIABLE, own_id
from hangdrill.launchers.protocol import LaunchRequest
from hangdrill.model.errors import UsageError
from hangdrill.model.scenario import FaultKind, LauncherName, Scenario
from hangdrill.model.sizes import parse_size

__all__ = ["launch_request", "launcher_for", "makes_dump_dir", "missing_launcher", "new_run_id", "plan_drill"]

PREFIX_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_OF_OUTER_JOBS = ("TORCHELASTIC_", "PET_")
_OF_RANKS = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
}  # fmt: skip


def new_run_id() -> str:
    """An id that no other drill has."""
    return f"hd-{uuid.uuid4().hex[:12]}"


def plan_drill(
    scenario: Scenario, *, name: str, run_dir: Path, python: str, environ: Mapping[str, str], run_id: str
) -> Plan:
    """Decide everything. UsageError when this version has no such launcher."""
    layout = RunLayout(run_dir.absolute())
    prefix = _dump_prefix(scenario, layout)
    within_s = scenario.expect.within_s or 3 * scenario.job.timeout_s + 10
    target, target_args = _target(scenario)
    image = scenario.job.image
    plan = Plan(
        name=name,
        run_id=run_id,
        scenario=scenario,
        uid=os.getuid(),
        created_ns=time.time_ns(),
        run_dir=str(layout.root),
        python=scenario.job.container.python if image else python,
        target=target,
        target_args=target_args,
        command=(),
        collector_command=(),
        cwd=_cwd(scenario, layout),
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
        collector_command=collector_command(plan, layout),
    )


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
        volumes=volumes_of(job),
        set_environ=plan.environment,
        collector=plan.collector_command if job.launcher is LauncherName.KUBERNETES else (),
        memory_bytes=None if job.memory is None else parse_size(job.memory),
        image=job.image,
        gpus="nccl" in job.backend,
        log_dir=str(RunLayout(Path(plan.run_dir)).torchrun_logs) if job.launcher is LauncherName.TORCHRUN else "",
    )


def _limit_s(deadlines: Deadlines, *, restarts: int) -> float:
    """By when the drill is over, however it goes: from the job's start to its last process."""
    waits_s = deadlines.nodes_s + deadlines.steady_s + deadlines.confirm_s + deadlines.restart_s * (restarts > 0)
    return waits_s + max(deadlines.within_s, deadlines.healthy_s) + deadlines.collector_s + 3 * deadlines.kill_s


def _target(scenario: Scenario) -> tuple[str, tuple[str, ...]]:
    job = scenario.job
    if job.script is not None:
        return job.script, job.args
    if job.workload is None:
        raise UsageError("a job needs a workload or a script", where="job", next_step='set workload = "ddp"')
    args = ("--steps", str(job.steps), "--timeout-s", f"{job.timeout_s:g}", "--backend", job.backend)
    return f"workload:{job.workload.value}", (*args, *job.args)


def _cwd(scenario: Scenario, layout: RunLayout) -> str:
    """Where the job is started: as the user stands; in an image, which has not that directory, beside the script."""
    if scenario.job.script is None:
        return str(layout.root)
    return str(Path(scenario.job.script).parent if scenario.job.image else Path.cwd())


def _environment(
    scenario: Scenario, layout: RunLayout, dump_prefix: str, run_id: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """What the drill sets. The scenario's `job.env` wins over the defaults, and never over what hangdrill lives by."""
    size = str(scenario.recorder.buffer_size)
    inherited = "" if scenario.job.image else environ.get("PYTHONPATH", "")  # an image has packages of its own
    python_path = [str(layout.agent_path), scenario.job.env.get("PYTHONPATH", inherited)]
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
