"""The agent's orders (`control/agent.json`), made from the scenario. Pure."""

from pathlib import Path
from typing import Literal

import msgspec

from hangdrill.model.scenario import Before, Fault, FaultKind, Scenario, Trigger

__all__ = ["AgentOrders", "FaultOrders", "agent_orders"]

EXIT_WAIT_S = 10.0
"""A rank that is about to exit waits at most this long for its evidence to be pulled."""
HOLD_MARGIN_S = 90.0
"""A hold ends by itself this long after the drill should be over: a dead controller cannot hold a rank for ever."""
SLOW_PART = 0.3

At = Literal["before", "init", "step", "destroy", "dataloader"]


class FaultOrders(msgspec.Struct, frozen=True, kw_only=True):
    """Which fault, on whom, where; see docs/reference/run-directory.md."""

    kind: str
    ranks: tuple[int, ...]
    at: At
    group: str | tuple[int, ...] = "default_pg"
    op: str | None = None
    nth: int | None = None
    step: int | None = None
    delay_s: float
    attempts: tuple[int, ...] = ()
    """Empty: in every attempt of torchrun."""


class AgentOrders(msgspec.Struct, frozen=True, kw_only=True):
    """All that an agent needs to know."""

    schema: Literal["hangdrill.agent/1"] = "hangdrill.agent/1"
    run_id: str
    control: str
    sockets: str
    trigger: Trigger
    backend: str
    timeout_s: float
    exit_wait_s: float
    max_hold_s: float
    debug_server_interval_s: float
    fault: FaultOrders


def agent_orders(scenario: Scenario, *, run_id: str, control: Path, sockets: Path, within_s: float) -> AgentOrders:
    """The orders of one drill."""
    return AgentOrders(
        run_id=run_id,
        control=str(control),
        sockets=str(sockets),
        trigger=scenario.recorder.trigger,
        backend=scenario.job.backend,
        timeout_s=scenario.job.timeout_s,
        exit_wait_s=EXIT_WAIT_S,
        max_hold_s=within_s + HOLD_MARGIN_S,
        debug_server_interval_s=scenario.recorder.debug_server_interval_s,
        fault=_fault_orders(scenario.fault, timeout_s=scenario.job.timeout_s, restarts=scenario.job.max_restarts),
    )


def _fault_orders(fault: Fault, *, timeout_s: float, restarts: int) -> FaultOrders:
    at, step = _place(fault)
    before = fault.before or Before()
    return FaultOrders(
        kind=FaultKind.NONE.value if fault.on_host else fault.kind.value,
        ranks=fault.targets,
        at=at,
        group=before.group,
        op=before.op,
        nth=None if fault.before is None else fault.before.nth,
        step=step,
        delay_s=SLOW_PART * timeout_s if fault.delay_s is None else fault.delay_s,
        # A restarted job must be able to recover: its new attempt is healthy.
        attempts=(0,) if restarts else (),
    )


def _place(fault: Fault) -> tuple[At, int | None]:
    """Where the fault is placed; a fault that says nothing is placed where its kind belongs."""
    text = fault.at
    if text is None:
        if fault.before is None and fault.kind is FaultKind.IN_DESTROY:
            return "destroy", None
        if fault.before is None and fault.kind is FaultKind.DATALOADER:
            return "dataloader", None
        return "before", None
    if text.startswith("step:"):
        return "step", int(text.removeprefix("step:"))
    places: dict[str, At] = {"init": "init", "destroy": "destroy", "dataloader": "dataloader"}
    return places[text], None
