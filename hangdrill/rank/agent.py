"""The agent of one rank: this module knows the order of things, the others know how.

1. the record of operations, and the control plane on its Unix socket
2. facts.json, so that the collector knows who this is
3. hooks on every group that is made, and the places of the fault
4. torch's debug server, if that is the road
5. signals
6. the user's program
7. its end, announced; then the end it would have had without the agent
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed as dist
from torch._C import _distributed_c10d

from hangdrill.rank import current, debug_server
from hangdrill.rank.ending import Ending
from hangdrill.rank.facts import Facts
from hangdrill.rank.faults import Fault
from hangdrill.rank.files import Flags, write_json
from hangdrill.rank.groups import GroupBook
from hangdrill.rank.opnames import OpNames
from hangdrill.rank.orders import Identity, Orders, read_orders
from hangdrill.rank.places import OperationPlace, StepPlace, place_in_destroy, place_in_fetch, place_in_init
from hangdrill.rank.plane import ControlPlane, recorder_of
from hangdrill.rank.record import Record
from hangdrill.rank.target import Target, TargetError, without_agent_frames
from hangdrill.rank.wrapped import wrap_functions

__all__ = ["Agent", "run_with_agent"]


class Agent:
    """Everything the agent holds in this process."""

    def __init__(self, orders: Orders, who: Identity) -> None:
        """Create the rank's files and listen on its socket. Raises OSError and RuntimeError."""
        hooks = getattr(_distributed_c10d, "HookOpName", None)
        self.hooked = hooks is not None and orders.placement != "wrapped"
        self._orders = orders
        self._who = who
        self.names = OpNames({name: int(member) for name, member in hooks.__members__.items()}) if hooks else OpNames()
        self.record = Record(orders.control / f"{who.stem}.ops")
        self._flags = Flags(orders.control, who.rank, who.stem)
        self.fault = Fault(orders, who, self._flags)
        self.facts = Facts(who, backend=orders.backend, placement="pre-hook" if self.hooked else "wrapped")
        self._place = OperationPlace(self.fault, self.record, self.names, self.facts, self._after_release)
        self.book = GroupBook(self._place.hooks if self.hooked else lambda group: (None, None), self.write_facts)
        self._steps = StepPlace(self.fault, self.record, self.book.scan)
        self.plane = ControlPlane(orders.sockets, f"{who.stem}.sock")
        self.ending: Ending | None = None
        if orders.trigger == "collector":
            self.ending = Ending(self._flags, who, exit_wait_s=orders.exit_wait_s, last=self._last_operation)

    @property
    def fault_kind(self) -> str:
        """The kind of the job's fault, on whichever rank."""
        return self._orders.fault.kind

    def start(self) -> None:
        """Take the places, before the user's program runs."""
        self.write_facts()
        self.plane.serve(facts=lambda: self.facts.with_counts(self.book, self.record), default_backend=self._recorder)
        self.book.install()
        place_in_init(self.fault, self.facts)
        place_in_destroy(self.fault, self.ending)
        self._steps.install()
        if self.fault.is_at("dataloader"):
            place_in_fetch(self.fault)
        if not self.hooked:
            wrap_functions(self.book, self._place.hooks, self.names)
        if self._orders.trigger == "debug-server":
            directory = self._orders.control.parent / "debug-server"
            self.facts.notes += debug_server.start(directory, interval_s=self._orders.debug_server_interval_s)
            self.write_facts()
        if self.ending is not None:
            self.ending.watch_signals()
        current.adopt(self)

    def step(self) -> None:
        """A training step of a loop without a torch optimizer."""
        self._steps.step()

    def disarm(self) -> None:
        """Take the hooks off: operations cost nothing more and are no longer counted."""
        self.book.disarm()

    def write_facts(self) -> None:
        """Rewrite facts.json."""
        write_json(self._orders.control / f"{self._who.stem}.facts.json", self.facts.without_counts(self.book))

    def close(self) -> None:
        """The program is over and its evidence is out."""
        if self.ending is not None:
            self.ending.finish()
        self.plane.remove_socket()

    def _after_release(self) -> None:
        if not self._orders.count:
            self.disarm()
        self.write_facts()

    def _recorder(self) -> str:
        backend_class = self.book.groups[0].backend_class if self.book.groups else ""
        return recorder_of(backend_class, self.facts.backend_requested)

    def _last_operation(self) -> dict[str, Any]:
        last = self.record.last(self.names.p2p)
        if last is None:
            return {"last_group": "", "last_sequence": 0, "last_p2p": False}
        group = self.book.groups[last.slot]
        return {"last_group": group.desc, "last_sequence": last.sequence, "last_p2p": last.p2p}


def run_with_agent(target: Target, orders_path: Path, environ: Mapping[str, str]) -> None:
    """Run `target` under the orders of `orders_path`. Raises OrdersError, and what the program ends with."""
    if not dist.is_available():
        raise RuntimeError("this torch was built without torch.distributed: there is nothing to drill")
    agent = Agent(read_orders(orders_path), Identity.from_environment(environ))
    agent.start()
    try:
        target.run()
    except TargetError:
        agent.close()
        raise
    except BaseException as error:
        if agent.ending is not None:
            agent.ending.by_exception(error)
        agent.close()
        _end_as_without_agent(error)
    if agent.ending is not None:
        agent.ending.normally()
    agent.close()


def _end_as_without_agent(error: BaseException) -> NoReturn:
    """Print what Python would have printed, without the agent's frames, and leave with the same status."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        raise error
    sys.excepthook(type(error), error, without_agent_frames(error.__traceback__))
    sys.stderr.flush()
    raise SystemExit(1)
