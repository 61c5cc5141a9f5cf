"""One rank's knowledge: all its dumps merged into one history. Nothing here compares ranks.

A rank may have left several dumps (native, pulled, active operations only), taken at different moments. What one of
them knows and another does not is kept; an operation that any of them saw finished is finished. Dumps that cannot be
of one process (one record number, two different operations) contradict each other: then none of them is believed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hangdrill.model.dump import GroupStatus, Operation, OperationState, RankDump

__all__ = ["RankView", "finished", "merge_dumps", "rewind", "seems_finished_at_once"]

INSTANT_NS = 200_000
"""nccl2 records a batched send or receive as completed about 1 us after it is issued; nothing real is that quick."""


@dataclass(slots=True)
class RankView:
    """What is known of one rank.

    full: a whole history is there, so that what is not in it was not entered (or was forgotten before first_record).
    listed: a dump lists all active operations, so that what comes after the last of them was not entered.
    cut: only cut files are there. What a rank is inside of is the first thing that a cut removes.
    first_record: the recorder's number of the oldest operation kept; 0 means that nothing was forgotten.
    groups: members by name and description, as the rank's own pg_config says.
    """

    rank: int
    operations: list[Operation] = field(default_factory=list)
    groups: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    statuses: dict[str, GroupStatus] = field(default_factory=dict)
    seen_ranks: set[int] = field(default_factory=set)
    full: bool = False
    listed: bool = False
    cut: bool = False
    first_record: int = 0
    contradictory: bool = False

    @property
    def empty(self) -> bool:
        """Whether no operation was ever recorded."""
        return not self.operations and all(status.last_enqueued < 0 for status in self.statuses.values())

    @property
    def mute(self) -> bool:
        """Whether that is all there is to know: a recorder that was asked for another backend's history is as empty,
        but then it knows no group either."""
        return self.empty and not self.full

    @property
    def from_the_start(self) -> bool:
        """Whether the whole history is there, from the first operation to the last."""
        return self.full and self.first_record == 0


def finished(operation: Operation) -> bool:
    """Whether the recorder says that the operation is over (gloo says it by `retired` only)."""
    return operation.retired or operation.state is OperationState.COMPLETED


def seems_finished_at_once(operation: Operation) -> bool:
    """nccl2's batched send or receive: recorded as completed when it is issued, so that this proves nothing."""
    return (
        operation.p2p
        and operation.backend == "nccl2"
        and operation.completed_ns is not None
        and operation.completed_ns - operation.created_ns < INSTANT_NS
    )


def merge_dumps(dumps: Iterable[RankDump]) -> dict[int, RankView]:
    """One view a rank, by rank."""
    by_rank: dict[int, list[RankDump]] = {}
    for dump in dumps:
        by_rank.setdefault(dump.rank, []).append(dump)
    return {rank: _merge(rank, by_rank[rank]) for rank in sorted(by_rank)}


def rewind(view: RankView, counted: Mapping[tuple[str, str], int]) -> None:
    """Forget what the rank did after the moment of the pull, at which its agent had counted so many collectives.

    A rank that is let go by the teardown goes on, and a dump that is pulled when it ends shows operations that its
    peers never saw. counted: by the group's name and description.
    """
    kept = [
        operation
        for operation in view.operations
        if operation.p2p
        or operation.sequence <= counted.get((operation.group_name, operation.group_desc), operation.sequence)
    ]
    if len(kept) < len(view.operations):
        view.operations = kept
        view.statuses = {}


def _merge(rank: int, dumps: list[RankDump]) -> RankView:
    view = RankView(rank=rank)
    dumps = sorted(dumps, key=lambda dump: (-len(dump.operations), dump.only_active, dump.salvaged, dump.path))
    known: dict[int, Operation] = {}
    for dump in dumps:
        _add_operations(view, known, dump)
        for group in dump.groups:
            view.seen_ranks.update(group.ranks)
            if group.ranks:
                view.groups.setdefault((group.name, group.desc), group.ranks)
        for status in dump.status:
            view.statuses[status.pg_id] = _later(view.statuses.get(status.pg_id), status)
    view.operations = _settle_batches([known[number] for number in sorted(known)])
    whole = [dump for dump in dumps if dump.operations and not dump.only_active and not dump.salvaged]
    view.cut = not whole and any(dump.salvaged for dump in dumps)
    view.full = bool(whole) or (view.empty and any(dump.groups and not dump.salvaged for dump in dumps))
    view.listed = not view.empty and any(dump.only_active for dump in dumps)
    view.first_record = min((dump.operations[0].record_id for dump in whole), default=0)
    return view


def _add_operations(view: RankView, known: dict[int, Operation], dump: RankDump) -> None:
    for operation in dump.operations:
        other = known.get(operation.record_id)
        if other is None:
            known[operation.record_id] = operation
        elif not _same(operation, other):
            view.contradictory = True
        elif finished(operation) and not finished(other):
            known[operation.record_id] = operation


def _same(one: Operation, other: Operation) -> bool:
    if one.created_ns and other.created_ns and one.created_ns != other.created_ns:
        return False
    return _identity(one) == _identity(other)


def _identity(operation: Operation) -> tuple[str, bool, int, str]:
    return operation.group_name, operation.p2p, operation.sequence, operation.name


def _later(one: GroupStatus | None, other: GroupStatus) -> GroupStatus:
    if one is None:
        return other
    return max(one, other, key=lambda status: (status.last_enqueued, status.last_completed))


def _settle_batches(operations: list[Operation]) -> list[Operation]:
    """Give the parts of a coalesced batch the state of the batch.

    nccl-legacy leaves the parts `scheduled` for good and records the truth in an entry "coalesced" that shares their
    sequence; where that entry was left out because it had finished, so have the parts.
    """
    batches: dict[tuple[str, str, bool, int], list[Operation]] = {}
    for operation in operations:
        if operation.backend == "nccl":
            key = (operation.group_name, operation.group_desc, operation.p2p, operation.sequence)
            batches.setdefault(key, []).append(operation)
    over: dict[int, bool] = {}
    for parts in batches.values():
        if len(parts) > 1:
            done = all(finished(part) for part in parts if part.name == "coalesced")
            over.update((part.record_id, done) for part in parts)
    return [_with_state(operation, over) for operation in operations if operation.name != "coalesced"]


def _with_state(operation: Operation, over: dict[int, bool]) -> Operation:
    done = over.get(operation.record_id)
    if done is None or done == finished(operation):
        return operation
    fields = {name: getattr(operation, name) for name in operation.__struct_fields__}
    state = OperationState.COMPLETED if done else OperationState.SCHEDULED
    return Operation(**{**fields, "state": state, "retired": done})
