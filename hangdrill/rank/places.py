"""Where a fault is placed: before an operation, before a step, in init or destroy.

Each place asks the fault whether it is meant, and lets it happen there. The fetch of a DataLoader is in
`hangdrill.rank.fetching`.
"""

import weakref
from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from hangdrill.rank.changes import CannotChange, Change
from hangdrill.rank.ending import Ending
from hangdrill.rank.facts import Facts
from hangdrill.rank.faults import Fault, Reached
from hangdrill.rank.groups import Hook, KnownGroup, counting_hook, replace_function
from hangdrill.rank.opnames import OpNames
from hangdrill.rank.orders import CHANGES, FaultOrder
from hangdrill.rank.record import P2P, Record

__all__ = ["OperationPlace", "StepPlace", "place_in_destroy", "place_in_init"]


class OperationPlace:
    """Makes the hooks of every group: they count; on the faulty rank the nth matching operation suffers."""

    def __init__(
        self,
        fault: Fault,
        record: Record,
        names: OpNames,
        facts: Facts,
        released: Callable[[], None],
        *,
        counts: bool = True,
    ) -> None:
        """released: called after the fault was let go. counts: whether groups without the fault are counted too."""
        self._fault = fault
        self._record = record
        self._names = names
        self._facts = facts
        self._counts = counts
        self._released = released
        self._codes = names.matching(fault.order.op)
        self._change = Change(fault.order.kind) if fault.order.kind in CHANGES and fault.is_ours else None

    def hooks(self, group: KnownGroup) -> tuple[Hook | None, Hook | None]:
        """The pre- and post-hook of a new group; none where nothing is to be done, for a hook costs microseconds."""
        count = counting_hook(self._record, self._names, group.slot)
        if not self._fault.is_at("before") or not _matches(self._fault.order, group):
            return (count if self._counts else None), None
        change = self._change
        return self._watching(group, count), None if change is None else lambda operation: change.undo()

    def _watching(self, group: KnownGroup, count: Hook) -> Hook:
        fault, codes, left = self._fault, self._codes, self._fault.order.nth

        def watch(operation: Any) -> None:
            nonlocal left
            if not fault.fired:
                code = int(operation.name)
                if code in codes:
                    left -= 1
                    if left == 0 and not self._reached(operation, code, group):
                        return
            count(operation)

        return watch

    def _reached(self, operation: Any, code: int, group: KnownGroup) -> bool:
        """Let the fault happen; False when the rank does not enter the operation after all."""
        op = self._names.names[code]
        sequence = self._record.counts(group.slot)[self._names.columns[code] == P2P] + 1
        reached = Reached(group=group.desc, op=op, sequence=sequence)
        if self._change is None:
            self._fault.happen(reached)
            self._released()
            return True
        pg = group.pg()
        try:
            self._change.check(operation, op, pg)
        except CannotChange as error:
            self._facts.notes.append(f"the fault did not take: {error}")
            self._released()
            return True
        self._fault.fired = True
        self._fault.report(reached)
        return self._change.apply(operation, op, pg)


def _matches(order: FaultOrder, group: KnownGroup) -> bool:
    if isinstance(order.group, tuple):
        return order.group == tuple(sorted(group.ranks))
    return order.group in (group.name, group.desc)


class StepPlace:
    """Counts training steps by the first optimizer that steps, and holds before the one that is meant."""

    def __init__(self, fault: Fault, record: Record, at_each_step: Callable[[], None]) -> None:
        """at_each_step: called before each step (it scans for groups that came by an unknown road)."""
        self._fault = fault
        self._record = record
        self._at_each_step = at_each_step
        self._optimizer: weakref.ref[Any] | None = None

    def install(self) -> None:
        """Watch every optimizer of the process."""
        register_optimizer_step_pre_hook(self._before)
        register_optimizer_step_post_hook(self._after)

    def step(self) -> None:
        """A step of a loop without an optimizer."""
        self._begin()
        self._record.steps += 1

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is optimizer:
            self._begin()

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._optimizer is not None and self._optimizer() is optimizer:
            self._record.steps += 1

    def _begin(self) -> None:
        self._at_each_step()
        if self._fault.is_at("step") and self._record.steps + 1 == self._fault.order.step:
            self._fault.happen(Reached(op="step"))


def place_in_init(fault: Fault, facts: Facts) -> None:
    """Note what `init_process_group` is asked for, and let a fault at "init" happen before it."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            backend = args[0] if args else kwargs.get("backend")
            facts.backend_requested = str(backend or facts.backend_requested)
            facts.device_id = kwargs.get("device_id")
            if fault.is_at("init"):
                fault.happen(Reached(op="init_process_group"))
            return original(*args, **kwargs)

        return init_process_group

    replace_function("init_process_group", make)


def place_in_destroy(fault: Fault, ending: Ending | None) -> None:
    """Let evidence out before groups are destroyed; hold there for "in-destroy", or for any fault at "destroy"."""
    blocked = False

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
            nonlocal blocked
            if fault.order.kind == "in-destroy" and fault.fired and not blocked:
                blocked = True
                fault.hold_here()
                return None  # released: the rank goes on with the operation it was about to enter
            if fault.is_at("destroy"):
                fault.happen(Reached(op="destroy_process_group"))
            if ending is not None:
                ending.before_destroy()
            return original(*args, **kwargs)

        return destroy_process_group

    replace_function("destroy_process_group", make)
