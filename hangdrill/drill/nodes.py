"""The controller's view of the nodes of a job on several hosts: it gives orders, hears the nodes, and finds the lost.

A thread of its own writes the controller's beat, so that no wait of the drill lets the nodes believe it dead. Clocks of
hosts are not compared: a node is lost when its beat has not changed for a while by the controller's own clock.
"""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from hangdrill.drill.layout import RunLayout
from hangdrill.drill.node_files import ControllerOrders, make_empty, read_in_place, show_new_names, write_in_place
from hangdrill.drill.plan_values import Plan
from hangdrill.drill.waiting import Waiter
from hangdrill.model.run import Leftover, NodeStatus

__all__ = ["LOST_AFTER_S", "Nodes", "prepare_nodes"]

BEAT_S = 0.25
END_S = 45.0
"""A node gives its ranks 11 s, what is left after the collector 10 s, and the shared directory 8 s."""
HEAR_S = 5.0
LOST_AFTER_S = 15.0
"""A node's beat comes about twice a second; a host that is busy importing torch may skip many."""


def prepare_nodes(layout: RunLayout, count: int) -> None:
    """Make every file that a node will write, so that its name is known on all hosts from the beginning."""
    layout.nodes.mkdir(mode=0o700, exist_ok=True)
    write_in_place(layout.controller_beat, ControllerOrders())
    for node in range(count):
        layout.node_evidence(node).mkdir(mode=0o700, exist_ok=True)
        make_empty(layout.node_status(node))
        make_empty(layout.node_log(node))


class Nodes:
    """All methods may be called from any thread."""

    def __init__(self, plan: Plan, layout: RunLayout) -> None:
        self.count = plan.scenario.job.nnodes
        self.per_node = plan.scenario.job.nproc_per_node
        self._collector_s = plan.deadlines.collector_s
        self._layout = layout
        self._lock = threading.RLock()
        self._orders = ControllerOrders()
        self._statuses: dict[int, NodeStatus] = {}
        self._silent_s: dict[int, float] = {}
        self._asked_ns: int | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to beat and to listen."""
        self._thread = threading.Thread(target=self._run, name="hangdrill-nodes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The drill is over. Safe to repeat."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(BEAT_S * 8)

    def order(self, change: Callable[[ControllerOrders], ControllerOrders]) -> None:
        """Change the orders, and write them at once."""
        with self._lock:
            self._orders = change(self._orders)
            self._beat()

    def statuses(self) -> dict[int, NodeStatus]:
        """What each node said last; a node that has not come is not in it."""
        with self._lock:
            return dict(sorted(self._statuses.items()))

    def missing(self) -> tuple[int, ...]:
        """The nodes that have not come."""
        return tuple(sorted(set(range(self.count)) - set(self.statuses())))

    def hear_again(self) -> None:
        """Wait until every node that is there has carried its files once more."""
        before = self.statuses()

        def probe() -> bool | None:
            now = self.statuses()
            done = all(self.is_over(node) or now[node].beat >= status.beat + 2 for node, status in before.items())
            return True if done else None

        Waiter().until(probe, deadline_s=HEAR_S)
        show_new_names(self._layout.control)

    def silent_s(self, node: int) -> float:
        """How long ago a node's beat changed, counted in the controller's own beats."""
        with self._lock:
            return self._silent_s.get(node, 0.0)

    def lost(self) -> tuple[int, ...]:
        """The nodes that came, did not finish, and are not heard of any more."""
        return tuple(
            node
            for node, status in self.statuses().items()
            if status.state != "finished" and self.silent_s(node) >= LOST_AFTER_S
        )

    def is_over(self, node: int) -> bool:
        """Whether no more is to come from a node: it finished, or it is lost."""
        status = self.statuses().get(node)
        return status is not None and (status.state == "finished" or node in self.lost())

    def all_over(self) -> bool:
        """Whether no more is to come from any node that came."""
        return all(self.is_over(node) for node in self.statuses())

    def problems(self) -> tuple[str, ...]:
        """What kept nodes from their part, in sentences."""
        return tuple(f"{status.host}: {status.problem}" for status in self.statuses().values() if status.problem)

    def trouble(self) -> str:
        """What is wrong with a host that no rank may notice: it is lost, or its ranks have lost their torchrun."""
        for node, status in self.statuses().items():
            if node in self.lost():
                return f"{status.host} has not been heard of for {self.silent_s(node):.0f} s"
            if status.torchrun not in (None, 0) and status.living and status.state == "running":
                ranks = ", ".join(map(str, status.living))
                return f"torchrun on {status.host} ended with {status.torchrun}, and its ranks {ranks} live on"
        return ""

    def job_over(self) -> bool:
        """Whether torchrun has ended on every node that can still tell."""
        statuses = self.statuses()
        if not statuses or self.missing():
            return False
        lost = self.lost()
        return all(node in lost or status.torchrun is not None for node, status in statuses.items())

    def exit_code(self) -> int | None:
        """The first of torchrun's exit codes that is none of success; None while nobody knows one."""
        codes = [status.torchrun for status in self.statuses().values() if status.torchrun is not None]
        return next((code for code in codes if code != 0), codes[0] if codes else None)

    def living_ranks(self) -> frozenset[int]:
        """The ranks whose processes are there, on the nodes that are heard of."""
        lost = self.lost()
        return frozenset(rank for node, found in self.statuses().items() if node not in lost for rank in found.living)

    def ranks_of(self, node: int) -> tuple[int, ...]:
        """The global ranks on a node: as it told them, else as torchrun numbers them."""
        status = self.statuses().get(node)
        first = node * self.per_node
        return (status.ranks if status is not None else ()) or tuple(range(first, first + self.per_node))

    def host_of(self, node: int) -> str:
        """The node's host name, as it told it."""
        status = self.statuses().get(node)
        return status.host if status is not None and status.host else f"node {node}"

    def ask(self, nodes: tuple[int, ...]) -> None:
        """Let the collectors of these nodes pull at once."""

        def more(orders: ControllerOrders) -> ControllerOrders:
            asked = {**orders.asked, **{str(node): orders.asked.get(str(node), 0) + 1 for node in nodes}}
            return msgspec.structs.replace(orders, asked=asked)

        self.order(more)

    def let_start(self) -> None:
        """Every node is there."""
        self.order(lambda orders: msgspec.structs.replace(orders, start=True))

    def release(self) -> None:
        """Let go of every held, stopped or blocked rank, and take back what was done to the network."""
        self.order(lambda orders: msgspec.structs.replace(orders, released=True))

    def lose_last(self) -> None:
        """The node with the highest number dies without a word; wait until it is found lost."""
        last = self.count - 1
        self.order(lambda orders: msgspec.structs.replace(orders, die=(*orders.die, last)))
        Waiter().until(lambda: self.is_over(last) or None, deadline_s=2 * LOST_AFTER_S)

    def end(self, *, kill: bool, hurry: bool = False) -> None:
        """Let every node end its part, and wait until each has, or is lost. Safe to repeat."""
        word: Literal["end", "kill"] = "kill" if kill else "end"
        self.order(
            lambda orders: msgspec.structs.replace(
                orders, end=orders.end or word, hurry=orders.hurry or hurry, released=True, teardown=True
            )
        )
        Waiter().until(lambda: self.all_over() or None, deadline_s=END_S + self._collector_s)

    def all_ran(self) -> bool:
        """Whether every node has had ranks."""
        statuses = self.statuses()
        return len(statuses) == self.count and all(status.ranks for status in statuses.values())

    def copy_of(self, path: str) -> Path | None:
        """Where a node that can still be heard of keeps a copy of what the job wrote on that host's own disk."""
        lost = self.lost()
        for node in range(self.count):
            copy = self._layout.node_native(node) / Path(path).name
            if node not in lost and copy.exists():
                return copy
        return None

    def place_of(self, path: str) -> str:
        """What holds a file that one host alone can see; "" for one that several see, and for none."""
        name = Path(path).name
        holders = [node for node in range(self.count) if (self._layout.node_native(node) / name).exists()]
        return f"the own file system of {self.host_of(holders[0])}" if len(holders) == 1 else ""

    def leftovers(self) -> tuple[Leftover, ...]:
        """What the nodes found on their hosts at the end."""
        return tuple(
            Leftover(what=left.what, name=f"{left.name} on {self.host_of(node)}")
            for node, status in self.statuses().items()
            for left in status.leftovers or ()
        )

    def _run(self) -> None:
        while not self._stop.wait(BEAT_S):
            for directory in (self._layout.control, self._layout.nodes):
                show_new_names(directory)
            self._listen()
            self._pass_on_questions()
            self.order(lambda orders: orders)

    def _listen(self) -> None:
        for node in range(self.count):
            found = read_in_place(self._layout.node_status(node), NodeStatus)
            with self._lock:
                before = self._statuses.get(node)
                if found is None or (before is not None and before.beat == found.beat):
                    # Its own beats, not a clock: a controller that was stopped for an hour has lost nobody.
                    self._silent_s[node] = self._silent_s.get(node, 0.0) + BEAT_S
                    continue
                self._statuses[node] = found
                self._silent_s[node] = 0.0

    def _pass_on_questions(self) -> None:
        """`collect_now` of the run directory is meant for every collector."""
        try:
            asked_ns = self._layout.collect_now.stat().st_mtime_ns
        except OSError:
            return
        if asked_ns != self._asked_ns:
            self._asked_ns = asked_ns
            self.ask(tuple(range(self.count)))

    def _beat(self) -> None:
        first = self._statuses.get(0)
        endpoint = first.endpoint if first is not None else ""
        teardown = self._orders.teardown or self._layout.teardown.exists()
        self._orders = msgspec.structs.replace(
            self._orders, beat=self._orders.beat + 1, endpoint=endpoint, teardown=teardown
        )
        with contextlib.suppress(OSError):  # a full disk: the nodes will find the controller silent and end everything
            write_in_place(self._layout.controller_beat, self._orders)
