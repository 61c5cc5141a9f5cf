"""The agent's orders: `agent.json`, written by the controller, and who this rank is, from the environment of torchrun.

Reads and checks; knows nothing of torch. The shapes are in docs/reference/run-directory.md.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["WATCHED", "FaultOrder", "Identity", "Orders", "OrdersError", "read_orders", "watched_orders"]

SCHEMA = "hangdrill.agent/1"

AT = ("before", "init", "step", "destroy", "dataloader")
TRIGGERS = ("collector", "native", "debug-server")
WATCHED = "watched"
"""The trigger of a job that nobody drills: it is only served to a collector. No file can order it."""
KINDS = (
    "none", "hold", "hold-gil", "stop", "spin", "skip", "wrong-op", "wrong-shape", "wrong-dtype", "raise", "kill",
    "exit", "slow", "in-destroy", "dataloader", "gpu-kernel", "oom", "store-death",
)  # fmt: skip
CHANGES = ("skip", "wrong-op", "wrong-shape", "wrong-dtype")
"""The kinds that change an operation, so they need one: `at` must be "before"."""

DEFAULT_FETCH = 4
"""Which fetch of a DataLoader worker stalls when the orders do not say: late enough for some healthy steps."""


class OrdersError(Exception):
    """The orders cannot be read or make no sense; the message says where and what was expected."""


@dataclass(frozen=True)
class Identity:
    """Who this process is in the job. attempt: how often torchrun restarted the job before."""

    rank: int
    attempt: int
    world_size: int
    local_rank: int

    @property
    def stem(self) -> str:
        """What this rank's files in control/ and sockets/ begin with."""
        return f"rank_{self.rank}.a{self.attempt}"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Identity":
        """From torchrun's variables; a process started without them is rank 0 of 1."""
        return cls(
            rank=int(environ.get("RANK", "0")),
            attempt=int(environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
            world_size=int(environ.get("WORLD_SIZE", "1")),
            local_rank=int(environ.get("LOCAL_RANK", "0")),
        )


@dataclass(frozen=True)
class FaultOrder:
    """One fault. group: a name, a description, or global ranks (sorted). attempts: () means every attempt."""

    kind: str = "none"
    ranks: tuple[int, ...] = ()
    at: str = "before"
    group: str | tuple[int, ...] = "default_pg"
    op: str | None = None
    nth: int = 1
    step: int = 1
    delay_s: float = 1.0
    attempts: tuple[int, ...] = ()

    def is_for(self, who: Identity) -> bool:
        """Whether this very process is to suffer it."""
        return self.kind != "none" and who.rank in self.ranks and (not self.attempts or who.attempt in self.attempts)


@dataclass(frozen=True)
class Orders:
    """Everything the controller tells the agents; the same file for all ranks."""

    run_id: str
    control: Path
    sockets: Path
    trigger: str = "collector"
    backend: str = ""
    timeout_s: float = 5.0
    exit_wait_s: float = 10.0
    max_hold_s: float = 120.0
    debug_server_interval_s: float = 2.0
    count: bool = True
    """False: no hooks on the groups that have no fault; operations are not counted there."""
    placement: str = "auto"
    """"wrapped" places the fault by wrapped Python functions even where torch has pre-hooks; for tests."""
    fault: FaultOrder = FaultOrder()


def read_orders(path: Path) -> Orders:
    """Read agent.json. Raises OrdersError."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OrdersError(f"{path}: cannot read the agent's orders: {error}") from error
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        found = raw.get("schema") if isinstance(raw, dict) else type(raw).__name__
        raise OrdersError(f"{path}: expected schema {SCHEMA!r}, got {found!r}: controller and agent differ in version")
    try:
        return _orders(raw)
    except KeyError as error:
        raise OrdersError(f"{path}: the key {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise OrdersError(f"{path}: {error}") from error


def watched_orders(sockets: str, run_id: str = "") -> Orders:
    """For a job of the user's own: no fault, no hooks, the control plane in `sockets` (made if missing, mode 0700), and
    the rank's other files beside it. Raises OrdersError."""
    directory = Path(sockets)
    if not directory.is_absolute():
        raise OrdersError(f"HANGDRILL_SOCKETS: expected an absolute directory, got {sockets!r}")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OrdersError(f"HANGDRILL_SOCKETS: cannot make {sockets}: {error.strerror}") from error
    return Orders(run_id=run_id, control=directory, sockets=directory, trigger=WATCHED, count=False)


def _orders(raw: Mapping[str, Any]) -> Orders:
    given = {key: raw[key] for key in ("trigger", "backend", "count", "placement") if key in raw}
    seconds = ("timeout_s", "exit_wait_s", "max_hold_s", "debug_server_interval_s")
    given.update({key: float(raw[key]) for key in seconds if raw.get(key) is not None})
    orders = Orders(
        run_id=str(raw["run_id"]),
        control=Path(raw["control"]),
        sockets=Path(raw["sockets"]),
        fault=_fault(raw.get("fault") or {}),
        **given,
    )
    _one_of("trigger", orders.trigger, TRIGGERS)
    _one_of("placement", orders.placement, ("auto", "wrapped"))
    return orders


def _fault(raw: Mapping[str, Any]) -> FaultOrder:
    kind = raw.get("kind", "none")
    _one_of("fault.kind", kind, KINDS)
    at = "dataloader" if kind == "dataloader" else raw.get("at") or "before"
    _one_of("fault.at", at, AT)
    if kind in CHANGES and at != "before":
        raise ValueError(f"fault.at: {kind} changes an operation, so it needs at = 'before', got {at!r}")
    nth = raw.get("nth")
    fault = FaultOrder(
        kind=kind,
        ranks=tuple(raw.get("ranks") or ()),
        at=at,
        group=_group(raw.get("group")),
        op=raw.get("op"),
        nth=(DEFAULT_FETCH if at == "dataloader" else 1) if nth is None else int(nth),
        step=int(raw.get("step") or 1),
        delay_s=float(1.0 if raw.get("delay_s") is None else raw["delay_s"]),
        attempts=tuple(raw.get("attempts") or ()),
    )
    if fault.nth < 1 or fault.step < 1:
        raise ValueError(f"fault.nth and fault.step count from 1, got {fault.nth} and {fault.step}")
    return fault


def _group(raw: Any) -> str | tuple[int, ...]:
    if raw is None:
        return "default_pg"
    return raw if isinstance(raw, str) else tuple(sorted(int(rank) for rank in raw))


def _one_of(key: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{key}: expected one of {', '.join(allowed)}, got {value!r}")
