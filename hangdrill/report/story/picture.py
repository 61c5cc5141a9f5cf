"""The rank-by-sequence picture of a group, with equal ranks folded into one row.

The window is cut until all rows together keep within a budget, so that the page of any job stays small: fewer
sequences are shown then, and none of them is made up.
"""

from collections.abc import Mapping, Set
from itertools import groupby

from hangdrill.model.diagnosis import Diagnosis
from hangdrill.report.story.index import GroupKey, Index
from hangdrill.report.story.ranks import Roles, label_of, runs_of
from hangdrill.report.story.slices import BEFORE, RankSlice, outdated
from hangdrill.report.story.standing import Standing, cell_of
from hangdrill.report.story.text import shown
from hangdrill.report.story.values import Cell, Picture, PictureRow

__all__ = ["AFTER", "MOST_CELLS", "pictures_of"]

AFTER = 8
"""So many sequences after the stuck one are shown."""
CONTEXT = 11
"""So many sequences before the last one are shown at least, also when no dump goes back so far."""
MOST_CELLS = 400_000
MOST_PICTURES = 6
MOST_RUNS = 20_000
"""So many runs of ranks can be unfolded of one row."""

Alike = Mapping[Standing, list[int]]
Odd = tuple[tuple[int, str], ...]


def pictures_of(
    diagnosis: Diagnosis, roles: Roles, slices: Mapping[int, RankSlice], index: Index
) -> tuple[tuple[Picture, ...], int]:
    """The stuck group's picture first, then those of the groups that most ranks are inside of; and how many groups
    more there are."""
    numbers = _in_order(index, roles, slices)
    kept = numbers[:MOST_PICTURES]
    open_ended = roles.inferred | outdated(slices, index)
    painters = [_Painter(diagnosis, roles, slices, index, group=group, open_ended=open_ended) for group in kept]
    pictures = [painter.paint(number, MOST_CELLS // len(kept)) for number, painter in enumerate(painters)]
    return tuple(pictures), len(numbers) - len(kept)


def _in_order(index: Index, roles: Roles, slices: Mapping[int, RankSlice]) -> list[int]:
    """All groups: the stuck one, then those in which a culprit is awaited, then those in which most is pending."""
    pending: dict[int, int] = {}
    users: dict[int, int] = {}
    for one in slices.values():
        for group, track in one.tracks.items():
            pending[group] = pending.get(group, 0) + (Cell.PENDING.value.encode() in track.states)
            users[group] = users.get(group, 0) + 1

    def order(group: int) -> tuple[bool, bool, int, int, GroupKey]:
        waiting, key = pending.get(group, 0), index.keys[group]
        awaits = bool(waiting and roles.culprits.intersection(key[2]))
        return group != index.stuck, not awaits, -waiting, -users.get(group, 0), key

    return sorted(range(len(index.keys)), key=order)


class _Painter:
    """One picture in the making. open_ended: ranks whose record does not prove that nothing came after it."""

    def __init__(
        self,
        diagnosis: Diagnosis,
        roles: Roles,
        slices: Mapping[int, RankSlice],
        index: Index,
        *,
        group: int,
        open_ended: Set[int],
    ) -> None:
        self.diagnosis, self.roles, self.slices, self.names, self.group = diagnosis, roles, slices, index.names, group
        self.open_ended = open_ended
        self.key = index.keys[group]
        self.stuck = diagnosis.stuck if group == index.stuck else None
        self.members = sorted(set(self.key[2]) or {rank for rank, one in slices.items() if group in one.tracks})

    def paint(self, number: int, budget: int) -> Picture:
        """Fold twice: ranks with one record, then records with the same cells."""
        alike = self._alike()
        first, last = self._window(alike)
        rows = self._rows(alike, first, last)
        least = self.stuck.sequence if self.stuck is not None else last
        while len(rows) * (last - first + 1) > budget and first < least:
            first = min(least, first + (last - first + 1) // 2)
            rows = self._rows(alike, first, last)
        what = "sends and receives of " if self.key[3] else ""
        column_names = [self._name_at(alike, sequence) for sequence in range(first, last + 1)]
        return Picture(
            number=number,
            title=f"{what}{shown(self.key[1] or self.key[0] or 'the group without a name', 120)}",
            whose=label_of(self.members),
            is_stuck=self.stuck is not None,
            awaits_culprit=any(row.is_culprit for row in rows) and any(Cell.PENDING.value in row.cells for row in rows),
            p2p=self.key[3],
            first=first,
            columns=last - first + 1,
            stuck=self.stuck.sequence if self.stuck is not None else None,
            names=tuple((len(list(run)), shown(name, 80)) for name, run in groupby(column_names)),
            rows=rows,
            entered_ms=self._entered(),
        )

    def _alike(self) -> dict[Standing, list[int]]:
        found: dict[Standing, list[int]] = {}
        for rank in self.members:
            one = self.slices.get(rank)
            standing = Standing(
                track=one.tracks.get(self.group) if one is not None else None,
                has_dump=one is not None,
                knows_end=one is not None and one.knows_end and rank not in self.open_ended,
                has_start=one is not None and one.has_start,
                role=self.roles.of(rank),
                is_culprit=rank in self.roles.culprits,
                is_inferred=rank in self.roles.inferred,
                is_odd=self._is_odd(rank),
                differs=self.roles.differs(one.pending) if one is not None and self.stuck is not None else "",
            )
            found.setdefault(standing, []).append(rank)
        return found

    def _is_odd(self, rank: int) -> bool:
        """Whether the diagnosis found a mismatch here, and this rank is named for it, or nobody is."""
        if self.stuck is None or not self.roles.is_mismatch:
            return False
        return rank in self.roles.culprits or (not self.roles.culprits and rank in self.roles.waiting)

    def _window(self, alike: Alike) -> tuple[int, int]:
        tracks = [standing.track for standing in alike if standing.track is not None]
        last = max((track.last for track in tracks), default=1)
        first = min((track.first for track in tracks), default=1)
        if self.stuck is not None:
            sequence = self.stuck.sequence
            last = min(max(last, sequence), sequence + AFTER)
            return max(min(first, sequence - CONTEXT), sequence - BEFORE, min(sequence, 1)), last
        return max(min(first, last - CONTEXT), last - BEFORE, min(last, 1)), last

    def _name_at(self, alike: Alike, sequence: int) -> str:
        """What most ranks did under this sequence; in the stuck operation, what the diagnosis says."""
        if self.stuck is not None and sequence == self.stuck.sequence:
            return self.stuck.op
        votes: dict[int, int] = {}
        for standing, ranks in alike.items():
            number = standing.number(sequence)
            if number is not None:
                votes[number] = votes.get(number, 0) + len(ranks)
        return self.names.name(max(votes, key=lambda number: (votes[number], -number))) if votes else ""

    def _rows(self, alike: Alike, first: int, last: int) -> tuple[PictureRow, ...]:
        usual = [self.names.index.get(self._name_at(alike, sequence)) for sequence in range(first, last + 1)]
        folded: dict[tuple[str, Odd, Standing], list[int]] = {}
        for standing, ranks in alike.items():
            cells, odd = self._cells(standing, first, usual)
            folded.setdefault((cells, odd, standing.outlook), []).extend(ranks)
        return tuple(
            PictureRow(
                label=label_of(ranks),
                count=len(ranks),
                runs=runs_of(ranks)[:MOST_RUNS],
                role=standing.role,
                is_culprit=standing.is_culprit,
                cells=_run_lengths(cells),
                odd=odd,
            )
            for (cells, odd, standing), ranks in sorted(folded.items(), key=_row_order)
        )

    def _cells(self, standing: Standing, first: int, usual: list[int | None]) -> tuple[str, Odd]:
        letters, odd = [], []
        for column, name in enumerate(usual):
            sequence = first + column
            cell = cell_of(standing, sequence, self.stuck)
            number = standing.number(sequence)
            if number is not None and number != name and not self.key[3]:
                cell = Cell.MISMATCH
                odd.append((column, shown(self.names.name(number), 80)))
            elif number is not None and standing.is_odd and self.stuck is not None and sequence == self.stuck.sequence:
                cell = Cell.MISMATCH
                if standing.differs:
                    odd.append((column, shown(f"{self.names.name(number)}, {standing.differs}", 80)))
            letters.append(cell.value)
        return "".join(letters), tuple(odd)

    def _entered(self) -> tuple[tuple[int, float], ...]:
        """When each waiting rank entered the stuck operation, in ms after the first."""
        waiting = self.stuck.waiting if self.stuck is not None else ()
        inside = {rank: one.pending for rank in waiting if (one := self.slices.get(rank)) is not None}
        at = {rank: pending.created_ns for rank, pending in inside.items() if pending is not None}
        start = min(at.values(), default=0)
        return tuple((rank, round((created_ns - start) / 1e6, 3)) for rank, created_ns in at.items())


def _row_order(row: tuple[tuple[str, Odd, Standing], list[int]]) -> tuple[bool, int]:
    """Culprits first, so that no unfolded row hides them."""
    (_, _, standing), ranks = row
    return not standing.is_culprit, min(ranks)


def _run_lengths(cells: str) -> str:
    return "".join(f"{len(list(run))}{letter}" for letter, run in groupby(cells))
