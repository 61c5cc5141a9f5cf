"""How a host comes into a drill: it waits for the run directory, and claims its number there."""

import os
from pathlib import Path

import msgspec

from hangdrill.drill.layout import RunLayout
from hangdrill.drill.plan_values import Plan
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.model.errors import MachineError, UsageError

__all__ = ["NodeOptions", "claim", "wait_for_plan"]

PLAN_DEADLINE_S = 900.0
POLL_S = 0.3


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The words of the command line. address, endpoint: "" for hangdrill's own choice."""

    run: Path
    node: int
    address: str = ""
    endpoint: str = ""
    local_dir: Path | None = None


def wait_for_plan(layout: RunLayout, node: int, interrupt: Interrupt) -> Plan:
    """The plan, once the controller has written it. UsageError when the drill is over or has no such node."""

    def probe() -> Plan | None:
        try:
            is_there = layout.controller_beat.exists() and layout.agent_orders.exists()
            return _read_plan(layout) if is_there else None
        except PermissionError as error:
            raise MachineError(
                f"user {os.geteuid()} may not read the run directory",
                where=str(layout.root),
                next_step="run hangdrill as the same user on every host; on NFS root is nobody by default",
            ) from error
        except OSError:  # a file server that is still making up its mind
            return None

    plan = Waiter(interrupt).until(probe, deadline_s=PLAN_DEADLINE_S, poll_s=POLL_S)
    where = str(layout.root)
    if plan is None:
        raise MachineError(
            f"there is no drill here after {PLAN_DEADLINE_S:g} s",
            where=where,
            next_step="start node 0, and check that this directory is on a file system that both hosts share",
        )
    if layout.result.exists() or _finished(layout):
        raise UsageError(
            "this drill is over already", where=where, next_step="name a new directory with --out on every host"
        )
    if not 0 <= node < plan.scenario.job.nnodes:
        raise UsageError(
            f"node {node} of {plan.scenario.job.nnodes}", where="--node", next_step="nodes are counted from 0"
        )
    return plan


def claim(layout: RunLayout, node: int) -> None:
    """Make this process the only one that serves the node. UsageError when another one does."""
    try:
        os.close(os.open(layout.nodes / f"{node}.claim", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError as error:
        raise UsageError(
            f"node {node} is served already",
            where=str(layout.root),
            next_step="give each host a number of its own with --node-rank",
        ) from error
    except OSError as error:
        raise MachineError(
            f"cannot write: {error.strerror}", where=str(layout.nodes), next_step="check that this host may write there"
        ) from error


def _read_plan(layout: RunLayout) -> Plan | None:
    try:
        return msgspec.json.decode(layout.plan.read_bytes(), type=Plan)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise UsageError(
            f"the plan is of another hangdrill: {error}",
            where=str(layout.plan),
            next_step="install the same version of hangdrill on every host",
        ) from error


def _finished(layout: RunLayout) -> bool:
    try:
        return b'"name":"finished"' in layout.journal.read_bytes()
    except OSError:
        return False
