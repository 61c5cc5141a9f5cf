"""A node process's directory on its own host: sockets, memory-mapped counts and FIFOs cannot be shared by hosts."""

import shutil
import tempfile
from pathlib import Path

import msgspec

from hangdrill.drill.fault import PlacedFault
from hangdrill.drill.layout import make_directory, write_json
from hangdrill.drill.orders import agent_orders
from hangdrill.drill.plan import makes_dump_dir
from hangdrill.drill.plan_values import Plan
from hangdrill.launchers.agent_path import prepare_agent_path
from hangdrill.model.errors import MachineError
from hangdrill.model.scenario import Fault, FaultKind

__all__ = ["LocalPlace", "is_mine", "make_place", "remove_place"]


class LocalPlace(msgspec.Struct, frozen=True):
    """Its paths. The root is short, since a socket's path may have 107 bytes only."""

    root: Path

    @property
    def control(self) -> Path:
        return self.root / "control"

    @property
    def sockets(self) -> Path:
        return self.root / "sockets"

    @property
    def orders(self) -> Path:
        return self.control / "agent.json"

    @property
    def agent_path(self) -> Path:
        return self.root / "agent"

    @property
    def job_log(self) -> Path:
        return self.root / "job.log"

    @property
    def collector_log(self) -> Path:
        return self.root / "collector.log"


def make_place(plan: Plan, node: int, parent: Path | None) -> tuple[LocalPlace, PlacedFault]:
    """Make it (mode 0700), with the agents' orders and what a rank will block on. MachineError when it cannot be."""
    try:
        place = LocalPlace(Path(tempfile.mkdtemp(prefix="hangdrill-", dir=parent)))
        for directory in (place.control, place.sockets):
            directory.mkdir(mode=0o700)
    except OSError as error:
        raise MachineError(
            f"cannot make a directory on this host: {error.strerror}",
            where=str(parent or tempfile.gettempdir()),
            next_step="name another one with --local-dir",
        ) from error
    wanted = _held_for_the_host(plan) if is_mine(plan, node) else plan.scenario.fault
    orders = agent_orders(
        msgspec.structs.replace(plan.scenario, fault=wanted),
        run_id=plan.run_id,
        control=place.control,
        sockets=place.sockets,
        within_s=plan.deadlines.within_s,
    )
    write_json(place.orders, orders)
    if makes_dump_dir(plan.scenario):
        make_directory(Path(plan.dump_prefix).parent)
    prepare_agent_path(place.agent_path)
    fault = PlacedFault(wanted, place.control)
    fault.arm()
    return place, fault


def is_mine(plan: Plan, node: int) -> bool:
    """Whether the scenario's fault is one of this node's host."""
    return plan.scenario.fault.on_host and plan.scenario.fault.host_node == node


def _held_for_the_host(plan: Plan) -> Fault:
    """Each rank of the host is held at the step until the host's own fault is placed."""
    return Fault(kind=FaultKind.HOLD, ranks=plan.expected_ranks, at=plan.scenario.fault.at)


def remove_place(place: LocalPlace) -> None:
    """Remove it with all that is in it; safe to repeat."""
    shutil.rmtree(place.root, ignore_errors=True)
