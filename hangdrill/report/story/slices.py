"""RankDump -> RankSlice: the little that the story keeps of one rank, so that all ranks together stay small.

Walks backwards from the last operation, and no further than the window around the stall. The cells of a group are one
byte a sequence, so that equal ranks are found by comparing bytes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hangdrill.diagnosis.history import finished, seems_finished_at_once
from hangdrill.model.dump import Operation, RankDump
from hangdrill.report.story.index import MOST_NAMES, Index
from hangdrill.report.story.ranks import Roles
from hangdrill.report.story.values import Cell, Role

__all__ = ["BEFORE", "RankSlice", "Track", "slice_ranks"]

BEFORE = 190
"""So many sequences before the stuck one are kept of each group."""
AHEAD = 20
"""So many sequences that were issued behind the stuck one are kept too."""
KEPT = BEFORE + AHEAD
TAIL = 8
"""So many last operations of a rank are on the timeline."""
TAIL_AFTER = 2


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
    stuck group. knows_end: what comes after the last recorded sequence was not entered. has_start: nothing was
    forgotten.
    """

    rank: int
    size: int
    tail: list[Operation]
    pending: Operation | None
    last_there: Operation | None
    tracks: dict[int, Track]
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


def _slice(dump: RankDump, roles: Roles, index: Index, *, kept: int) -> RankSlice:
    stuck = roles.stuck
    cells: dict[int, dict[int, tuple[str, int]]] = {}
    batches: dict[tuple[int, int], bool] = {}
    newest: dict[int, int] = {}
    keys, group = _Keys(dump, roles, index), index.stuck
    pending: Operation | None = None
    inside: Operation | None = None
    last_there: Operation | None = None
    for operation in reversed(dump.operations):
        key = keys.of(operation)
        if operation.backend == "nccl" and operation.name == "coalesced":
            batches[key, operation.sequence] = finished(operation)
            continue
        mine = cells.setdefault(key, {})
        there = key == group
        if operation.sequence <= newest.setdefault(key, operation.sequence) - kept:
            if stuck is None or there:
                break
            continue
        done = batches.get((key, operation.sequence), finished(operation))
        letter = _letter(operation, done=done)
        if operation.sequence not in mine or letter is Cell.PENDING:
            mine[operation.sequence] = (letter.value, index.names.number(operation.name))
        if not done and (not operation.p2p or pending is None or pending.p2p):
            pending = operation
        if there and stuck is not None and operation.sequence == stuck.sequence and roles.of(dump.rank) is Role.WAITING:
            inside = inside or operation
        elif there and done:
            last_there = last_there or operation
    first = dump.operations[0].record_id if dump.operations else 0
    return RankSlice(
        rank=dump.rank,
        size=len(dump.operations),
        tail=_tail(dump.operations, inside),
        pending=inside or pending,
        last_there=last_there,
        tracks={key: _track(found) for key, found in cells.items() if found},
        knows_end=bool(dump.operations) and not dump.salvaged and not (dump.only_active and pending is None),
        has_start=bool(dump.operations) and first == 0 and not dump.only_active,
        only_active=dump.only_active,
    )


def _tail(operations: Sequence[Operation], inside: Operation | None) -> list[Operation]:
    """The last operations; of a rank that went on issuing behind the stuck one, those around it."""
    end = len(operations)
    if inside is not None:
        end = next(index for index in range(end - 1, -1, -1) if operations[index].record_id == inside.record_id)
        end = min(len(operations), end + 1 + TAIL_AFTER)
    return list(operations[max(0, end - TAIL) : end])


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


def _letter(operation: Operation, *, done: bool) -> Cell:
    if not done:
        return Cell.PENDING
    return Cell.ISSUED if seems_finished_at_once(operation) else Cell.COMPLETED


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
