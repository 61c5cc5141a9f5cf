"""A drill as it was decided: one frozen value, and what follows from it without looking at anything.

`drill.plan` makes it, `show` prints it, and everything later reads it (also from plan.json).
"""

from pathlib import Path
from typing import Literal

import msgspec

from hangdrill.drill.layout import RunLayout
from hangdrill.drill.orders import AgentOrders
from hangdrill.drill.procfs import CONTROLLER_VARIABLE, RUN_ID_VARIABLE
from hangdrill.launchers.box import find_mounted, mounted_volumes
from hangdrill.model.scenario import FaultKind, Job, LauncherName, Scenario, Volume

__all__ = [
    "COLLECTOR_S",
    "CONTROLLER_MARKS",
    "Deadlines",
    "Plan",
    "dump_place",
    "is_healthy",
    "stall_after_s",
    "volumes_of",
]

COLLECTOR_S = 5.0
CONTROLLER_MARKS = (RUN_ID_VARIABLE, CONTROLLER_VARIABLE)
"""By these variables a process of the drill is known as its own."""
STALL_PART_WITH_A_FAULT, STALL_PART = 0.6, 0.8
"""Of the group's timeout. A confirmed fault may be looked at early; a negative control is watched as a real job is."""


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


def is_healthy(scenario: Scenario) -> bool:
    """Whether the job should end by itself, without a hang."""
    return scenario.fault.kind in {FaultKind.NONE, FaultKind.SLOW}


def stall_after_s(scenario: Scenario) -> float:
    """How long an operation may be pending before the collector looks."""
    part = STALL_PART if is_healthy(scenario) else STALL_PART_WITH_A_FAULT
    return round(part * scenario.job.timeout_s, 3)


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
    return find_mounted(mounted_volumes(volumes_of(plan.scenario.job), plan.run_dir), path)


def volumes_of(job: Job) -> tuple[Volume, ...]:
    return tuple(Volume.parse(text) for text in job.volumes)
