"""One rank's knowledge: all its dumps merged into one history. Nothing here compares ranks.

A rank may have left several dumps (native, pulled, active operations only), taken at different moments. What one of
them knows and another does not is kept; an operation that any of them saw finished is finished. Dumps that cannot be
of one process (one record number, two different operations) contradict each other: then none of them is believed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hangdrill.diagnosis.history import History, Key, finished
from hangdrill.diagnosis.legacy import settle
from hangdrill.model.dump import GroupStatus, Operation, RankDump
from hangdrill.model.table import OperationTable

__all__ = ["RankView", "merge_dumps", "rewind"]

FEW_OPERATIONS = 64
"""So many are compared one by one."""


@dataclass(slots=True)
class RankView:
    """What is known of one rank.

    full: a whole history is there, so that what is not in it was not entered (or was forgotten before first_record).
    listed: a dump lists all active operations, so that what comes after the last of them was not entered.
    cut: only cut files are there. What a rank is inside of is the first thing that a cut removes.
    first_record: the recorder's number of the oldest operation kept; 0 means that nothing was forgotten.
    groups: members by name and description, as the rank's own pg_config says. mentioned: all lists of ranks in it.
    history: all operations; operations: the notable ones of them.
    """

    rank: int
    history: History = field(default_factory=lambda: History(OperationTable.of(())))
    operations: list[Operation] = field(default_factory=list)
    groups: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    statuses: dict[str, GroupStatus] = field(default_factory=dict)
    mentioned: list[tuple[int, ...]] = field(default_factory=list)
    full: bool = False
    listed: bool = False
    cut: bool = False
    first_record: int = 0
    contradictory: bool = False
    _by_key: dict[tuple[Key, int], list[Operation]] | None = None

    def find(self, key: Key, sequence: int) -> list[Operation]:
        """The collectives of a group that have this sequence; nearly always among the notable ones."""
        if self._by_key is None:
            self._by_key = {}
            for operation in self.operations:
                if not operation.p2p:
                    place = (operation.group_name, operation.group_desc), operation.sequence
                    self._by_key.setdefault(place, []).append(operation)
        return self._by_key.get((key, sequence)) or self.history.find(key, sequence)

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

    def before(operation: Operation) -> bool:
        key = operation.group_name, operation.group_desc
        return operation.p2p or operation.sequence <= counted.get(key, operation.sequence)

    if not all(map(before, view.operations)):
        _remember(view, view.history.keep(before))
        view.statuses = {}


def _remember(view: RankView, history: History) -> None:
    view.history = history
    view.operations = history.notable()
    view._by_key = None


def _merge(rank: int, dumps: list[RankDump]) -> RankView:
    view = RankView(rank=rank)
    dumps = sorted(dumps, key=lambda dump: (-len(dump.operations), dump.only_active, dump.salvaged, dump.path))
    for dump in dumps:
        for group in dump.groups:
            view.mentioned.append(group.ranks)
            if group.ranks:
                view.groups.setdefault((group.name, group.desc), group.ranks)
        for status in dump.status:
            view.statuses[status.pg_id] = _later(view.statuses.get(status.pg_id), status)
    _remember(view, History(*settle(_merged(view, dumps))))
    whole = [dump for dump in dumps if dump.operations and not dump.only_active and not dump.salvaged]
    view.cut = not whole and any(dump.salvaged for dump in dumps)
    view.full = bool(whole) or (view.empty and any(dump.groups and not dump.salvaged for dump in dumps))
    view.listed = not view.empty and any(dump.only_active for dump in dumps)
    view.first_record = min((dump.operations[0].record_id for dump in whole), default=0)
    return view


def _merged(view: RankView, dumps: list[RankDump]) -> OperationTable:
    """All operations of a rank's dumps (the longest first); those of one process, or the view is contradictory."""
    tables = [OperationTable.of(dump.operations) for dump in dumps]
    if _in_order(tables[0]) and all(_covers(tables[0], table) for table in tables[1:]):
        return tables[0]
    known: dict[int, Operation] = {}
    for table in tables:
        _add_operations(view, known, table)
    return OperationTable.of(known[number] for number in sorted(known))


def _in_order(table: OperationTable) -> bool:
    """Whether each record number is there once, in order."""
    numbers = table.record_ids
    return isinstance(numbers, range) or all(map(int.__lt__, numbers, numbers[1:]))


def _covers(longer: OperationTable, other: OperationTable) -> bool:
    """Whether the longer table knows all of the other one, and its operations are as far as those of the other or
    further. Where this is hard to see, it is False."""
    if not len(other):
        return True
    if not isinstance(longer.record_ids, range) or not isinstance(other.record_ids, range):
        return False
    start, size = other.record_ids[0] - longer.record_ids[0], len(other)
    if start < 0 or start + size > len(longer) or len(longer) <= FEW_OPERATIONS:
        return False
    same = slice(start, start + size)
    if list(longer.created_ns[same]) != list(other.created_ns) or list(longer.sequences[same]) != list(other.sequences):
        return False
    pairs = {(longer.kinds[one], other.kinds[two]) for one, two in set(zip(longer.kind[same], other.kind, strict=True))}
    return all(
        _identity(one)[:2] == _identity(two)[:2] and one.name == two.name and (finished(one) or not finished(two))
        for one, two in pairs
    )


def _add_operations(view: RankView, known: dict[int, Operation], operations: Iterable[Operation]) -> None:
    for operation in operations:
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
