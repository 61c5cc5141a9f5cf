"""The agent of one rank: this module knows the order of things, the others know how.

1. the record of operations, and the control plane on its Unix socket
2. facts.json, so that the collector knows who this is
3. hooks on every group that is made, and the places of the fault
4. torch's debug server, if that is the road
5. signals
6. the user's program
7. its end, announced and waited for; then the end it would have had without the agent, exit status included, except
   that the interpreter is not torn down (`hangdrill.rank.leaving` says why)
"""

import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import torch.distributed as dist
from torch._C import _distributed_c10d

from hangdrill.rank import current, debug_server
from hangdrill.rank.ending import Ending
from hangdrill.rank.facts import Facts
from hangdrill.rank.faults import Fault
from hangdrill.rank.fetching import place_in_fetch
from hangdrill.rank.files import Flags, write_json
from hangdrill.rank.groups import GroupBook
from hangdrill.rank.leaving import exit_code, leave, print_error
from hangdrill.rank.opnames import OpNames
from hangdrill.rank.orders import WATCHED, Identity, Orders
from hangdrill.rank.places import OperationPlace, StepPlace, place_in_destroy, place_in_init
from hangdrill.rank.plane import ControlPlane, recorder_of
from hangdrill.rank.record import Record
from hangdrill.rank.target import Target, TargetError
from hangdrill.rank.wrapped import wrap_functions

__all__ = ["USAGE", "Agent", "run_with_agent"]

GLOO = "ProcessGroupGloo"
WRAPPED = "placed by wrapped functions: operations that C++ or functional collectives start are not counted nor held"
USAGE = 64
"""Exit code for a bad command line or bad orders, as everywhere in hangdrill."""


class Agent:
    """Everything the agent holds in this process. Once there is one, the interpreter must not be torn down: its server
    may not be alive then (SIGABRT)."""

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
        self._place = OperationPlace(
            self.fault, self.record, self.names, self.facts, self._after_release, counts=orders.count
        )
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
            self.facts.notes.append(WRAPPED)
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

    @property
    def leaves_by_itself(self) -> bool:
        """Whether the agent ends the process. Where torch is drilled alone and not on gloo, its own end is shown. Not
        where a collector may be asking just then: `ControlPlane.shutdown` would wait for it for good."""
        if self._orders.trigger == WATCHED:
            return True
        first = self.book.groups[0].backend_class if self.book.groups else GLOO
        return self.ending is not None or first == GLOO

    def end(self, error: BaseException | None) -> None:
        """The program is over, with `error` or at its end: announce it, and return once its evidence is out."""
        if self.ending is not None and error is None:
            self.ending.normally()
        elif self.ending is not None and error is not None:
            self.ending.by_exception(error)
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


def run_with_agent(target: Target, orders: Orders, environ: Mapping[str, str]) -> NoReturn:
    """Run `target` under `orders`, to the end of the process. Raises SystemExit, and what the agent's files raise."""
    if not dist.is_available():
        raise RuntimeError("this torch was built without torch.distributed: there is nothing to drill")
    agent = Agent(orders, Identity.from_environment(environ))
    error = _run(target, agent)
    agent.end(error)
    if agent.leaves_by_itself:
        leave(error)
    agent.plane.shutdown()
    print_error(error)
    raise SystemExit(exit_code(error))


def _run(target: Target, agent: Agent) -> BaseException | None:
    """What the program ended with, None for its end."""
    try:
        agent.start()
        target.run()
    except TargetError as error:
        print(f"hangdrill.rank: {error}", file=sys.stderr)
        return SystemExit(USAGE)
    except BaseException as error:
        return error
    return None
