"""RankDump -> RankSlice: the little that the story keeps of one rank, so that all ranks together stay small.

Walks backwards from the last operation, and no further than the window around the stall. The cells of a group are one
byte a sequence, so that equal ranks are found by comparing bytes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from hangdrill.diagnosis.history import NEW_BACKENDS, finished, seems_finished_at_once
from hangdrill.diagnosis.progress import SYNCHRONISING
from hangdrill.model.diagnosis import StuckOperation
from hangdrill.model.dump import Operation, RankDump
from hangdrill.model.table import OperationTable
from hangdrill.report.story.index import MOST_NAMES, Index
from hangdrill.report.story.ranks import Roles
from hangdrill.report.story.values import Cell, Role

__all__ = ["BEFORE", "RankSlice", "Track", "outdated", "slice_ranks"]

BEFORE = 190
"""So many sequences before the stuck one are kept of each group."""
AHEAD = 20
"""So many sequences that were issued behind the stuck one are kept too."""
KEPT = BEFORE + AHEAD
TAIL = 8
"""So many last operations of a rank are on the timeline."""
TAIL_AFTER = 2
ROWS_A_SEQUENCE = 8
"""A group has this share of its rank's operations, or what is kept of it begins later."""
PENDING, ISSUED, COMPLETED = Cell.PENDING.value, Cell.ISSUED.value, Cell.COMPLETED.value


@dataclass(frozen=True, slots=True)
class Track:
    """What a rank recorded in a group: `states` and `names` have a byte a sequence from `first` on; a state is the
    letter of a Cell, a name a number of `Index.names`."""

    first: int
    states: bytes
    names: bytes

    @property
    def last(self) -> int:
        """The last sequence recorded."""
        return self.first + len(self.states) - 1


@dataclass(slots=True)
class RankSlice:
    """One rank.

    tail: its last operations, oldest first. pending: what it is inside of: the stuck operation, else its oldest
    unfinished collective, else its oldest unfinished send or receive. last_there: its last finished operation in the
    stuck group. proven: by group, the last sequence that it finished and nobody can finish unless all have entered it.
    knows_end: what comes after the last recorded sequence was not entered. has_start: nothing was forgotten.
    """

    rank: int
    size: int
    tail: list[Operation]
    pending: Operation | None
    last_there: Operation | None
    tracks: dict[int, Track]
    proven: dict[int, int]
    knows_end: bool
    has_start: bool
    only_active: bool


def slice_ranks(
    dumps: Iterable[RankDump], roles: Roles, stale: Iterable[int], index: Index, *, before: int = BEFORE
) -> dict[int, RankSlice]:
    """One slice a rank, by rank; several dumps of one rank become one. before: sequences to keep before the stall."""
    old = set(stale)
    slices: dict[int, RankSlice] = {}
    for dump in dumps:
        if dump.rank in old:
            continue
        one = _slice(dump, roles, index, kept=before + AHEAD)
        other = slices.get(dump.rank)
        slices[dump.rank] = one if other is None else _merge(other, one)
    return dict(sorted(slices.items()))


def outdated(slices: Mapping[int, RankSlice], index: Index) -> frozenset[int]:
    """Ranks whose dump lacks an operation that a peer finished, which takes all: it is older than that, and proves no
    absence."""
    proven: dict[int, int] = {}
    for one in slices.values():
        for group, sequence in one.proven.items():
            proven[group] = max(sequence, proven.get(group, 0))
    return frozenset(
        rank
        for group, sequence in proven.items()
        for rank in index.keys[group][2]
        if (own := slices.get(rank)) is not None and _ends_before(own, group, sequence)
    )


def _ends_before(one: RankSlice, group: int, sequence: int) -> bool:
    track = one.tracks.get(group)
    return one.has_start if track is None else track.last < sequence


def _slice(dump: RankDump, roles: Roles, index: Index, *, kept: int) -> RankSlice:
    table = OperationTable.of(dump.operations)
    keys = _Keys(dump, roles, index)
    found = _Found(table, [_Kind(kind, keys, index) for kind in table.kinds])
    stuck = roles.stuck
    found.look_back(index.stuck, kept, stuck if roles.of(dump.rank) is Role.WAITING else None)
    pending = None if found.pending is None else table[found.pending]
    inside = None if found.inside is None else table[found.inside]
    return RankSlice(
        rank=dump.rank,
        size=len(table),
        tail=_tail(table, found.inside),
        pending=inside or pending,
        last_there=None if found.last_there is None else table[found.last_there],
        tracks={key: _track(cells) for key, cells in found.cells.items() if cells},
        proven=found.proven,
        knows_end=bool(table) and not dump.salvaged and not (dump.only_active and pending is None),
        has_start=bool(table) and table.record_ids[0] == 0 and not dump.only_active,
        only_active=dump.only_active,
    )


class _Kind:
    """What all operations of a kind have in common, looked up once."""

    def __init__(self, kind: Operation, keys: "_Keys", index: Index) -> None:
        self.key = keys.of(kind)
        self.p2p = kind.p2p
        self.done = finished(kind)
        self.is_batch = kind.backend == "nccl" and kind.name == "coalesced"
        self.name = MOST_NAMES if self.is_batch else index.names.number(kind.name)
        self.may_be_issued = kind.p2p and kind.backend in NEW_BACKENDS
        self.takes_all = kind.name in SYNCHRONISING and not kind.p2p
        self.may_have_failed = kind.backend == "gloo"
        """gloo calls over what has failed."""
        self.may_run_ahead = kind.backend == "nccl" and not kind.p2p
        """nccl-legacy calls completed what waits behind what is not."""


class _Found:
    """What is found on the way back from the last operation: rows of the table, and cells."""

    def __init__(self, table: OperationTable, kinds: list[_Kind]) -> None:
        self.table = table
        self.kinds = kinds
        self.cells: dict[int, dict[int, tuple[str, int]]] = {}
        self.pending: int | None = None
        self.inside: int | None = None
        self.last_there: int | None = None
        self.proven: dict[int, int] = {}

    def look_back(self, group: int | None, kept: int, waiting_in: StuckOperation | None) -> None:
        """group: the number of the stuck group. kept: so many sequences of each group, before what the rank is inside
        of. waiting_in: what the rank waits in, if it does."""
        batches: dict[tuple[int, int], bool] = {}
        oldest: dict[int, int] = {}
        size = len(self.table)
        rows = size - min(self._first_open(), size) + kept * ROWS_A_SEQUENCE
        columns = zip(reversed(self.table.kind), reversed(self.table.sequences), strict=True)
        for back, (number, sequence) in enumerate(islice(columns, rows)):
            kind = self.kinds[number]
            key = kind.key
            row = size - 1 - back
            if kind.is_batch:
                batches[key, sequence] = kind.done
                continue
            done = batches.get((key, sequence), kind.done)
            if not done:
                oldest[key] = min(oldest.get(key, sequence), sequence - kept + 1)
            elif sequence < oldest.setdefault(key, sequence - kept + 1):
                if group is None or key == group:
                    break
                continue
            is_last = key not in self.cells
            self._put(row, kind, sequence, done=done)
            if not done and kind.may_run_ahead:
                self.proven.pop(key, None)
            elif done and kind.takes_all and not (is_last and kind.may_have_failed):
                self.proven.setdefault(key, sequence)
            if not done and (not kind.p2p or self.pending is None or self.kinds[self.table.kind[self.pending]].p2p):
                self.pending = row
            if key == group and waiting_in is not None and sequence == waiting_in.sequence:
                self.inside = row if self.inside is None else self.inside
            elif key == group and done and self.last_there is None:
                self.last_there = row

    def _first_open(self) -> int:
        """The row of the first unfinished operation; beyond the end when there is none."""
        column = self.table.kind
        open_kinds = (number for number, kind in enumerate(self.kinds) if not kind.done)
        return min((column.index(number) for number in open_kinds if number in column), default=len(column))

    def _put(self, row: int, kind: _Kind, sequence: int, *, done: bool) -> None:
        mine = self.cells.setdefault(kind.key, {})
        if not done:
            mine[sequence] = (PENDING, kind.name)
        elif sequence not in mine:
            issued = kind.may_be_issued and seems_finished_at_once(self.table[row])
            mine[sequence] = (ISSUED if issued else COMPLETED, kind.name)


def _tail(table: OperationTable, inside: int | None) -> list[Operation]:
    """The last operations; of a rank that went on issuing behind the stuck one, those around it."""
    end = len(table) if inside is None else min(len(table), inside + 1 + TAIL_AFTER)
    return list(table[max(0, end - TAIL) : end])


class _Keys:
    """The group numbers of one dump, found once each."""

    def __init__(self, dump: RankDump, roles: Roles, index: Index) -> None:
        self.index = index
        self.rank, self.stuck = dump.rank, roles.stuck
        self.is_member = roles.is_member(dump.rank)
        self.members = {(group.name, group.desc): group.ranks for group in dump.groups if dump.rank in group.ranks}
        self.known: dict[tuple[str, str, bool], int] = {}

    def of(self, operation: Operation) -> int:
        """The number of the group of an operation."""
        short = (operation.group_name, operation.group_desc, operation.p2p)
        if short not in self.known:
            members = self.members.get(short[:2], ())
            if self.stuck is not None and self._is_stuck(short, members):
                members = self.stuck.group.ranks
            self.known[short] = self.index.group((short[0], short[1], members, short[2]))
        return self.known[short]

    def _is_stuck(self, short: tuple[str, str, bool], members: tuple[int, ...]) -> bool:
        group = self.stuck.group if self.stuck is not None else None
        if group is None or short[:2] != (group.name, group.desc) or not self.is_member:
            return False
        return not members or members == group.ranks


def _track(found: dict[int, tuple[str, int]]) -> Track:
    last = max(found)
    first = max(min(found), last - KEPT)
    gap = (Cell.UNKNOWN.value, MOST_NAMES + 1)
    row = [found.get(sequence, gap) for sequence in range(first, last + 1)]
    return Track(first, "".join(letter for letter, _ in row).encode(), bytes(number for _, number in row))


def _merge(one: RankSlice, other: RankSlice) -> RankSlice:
    """The slice of the dump that holds more, with what the other adds."""
    main, more = (one, other) if one.size >= other.size else (other, one)
    for key, track in more.tracks.items():
        main.tracks[key] = _merge_tracks(main.tracks[key], track) if key in main.tracks else track
    for group, sequence in more.proven.items():
        main.proven[group] = max(sequence, main.proven.get(group, 0))
    for name in ("pending", "last_there"):
        mine, theirs = getattr(main, name), getattr(more, name)
        if mine is not None and theirs is not None and not mine.frames and mine.record_id == theirs.record_id:
            setattr(main, name, theirs)
    main.knows_end = main.knows_end or more.knows_end
    main.has_start = main.has_start or more.has_start
    main.only_active = main.only_active and more.only_active
    return main


def _merge_tracks(one: Track, other: Track) -> Track:
    """An operation that any of them saw finished is finished."""
    last = max(one.last, other.last)
    found: dict[int, tuple[str, int]] = {}
    for track in (one, other):
        for index, (state, number) in enumerate(zip(track.states.decode(), track.names, strict=True)):
            known = found.get(track.first + index)
            if known is None or known[0] == Cell.UNKNOWN.value or state in {Cell.COMPLETED.value, Cell.ISSUED.value}:
                found[track.first + index] = (state, number)
    return _track({sequence: value for sequence, value in found.items() if sequence > last - KEPT})
