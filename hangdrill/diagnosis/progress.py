"""How far each rank came in the collectives of one group: entered, not entered, or nobody knows.

Sequences of a group's collectives count from 1 on every rank alike. A rank's history ends where its dump was taken and
may begin late (ring buffer), lack what had finished (active operations only) or be cut; so "not entered" is only said
where a whole history, the agent's count, a list of all active operations or the group's `pg_status` proves it.
"""

from collections.abc import Mapping
from itertools import takewhile

from hangdrill.diagnosis.groups import GroupView
from hangdrill.diagnosis.history import finished
from hangdrill.diagnosis.signatures import signatures
from hangdrill.diagnosis.status import StatusBook
from hangdrill.diagnosis.views import RankView
from hangdrill.model.dump import Operation

__all__ = ["SYNCHRONISING", "Counts", "Failed", "Progress"]

SYNCHRONISING = frozenset({
    "all_reduce", "allreduce_coalesced", "all_gather", "_all_gather_base", "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced", "all_to_all", "all_to_all_single", "barrier",
})  # fmt: skip
"""Operations that no rank can finish before all have entered. The root of a broadcast can, and so can the leaves of a
reduce, gather or scatter."""

Failed = frozenset[tuple[int, int]]
"""(rank, record id) of operations whose rank reported that they failed, whatever the recorder says."""

Counts = Mapping[tuple[int, str, str], int]
"""How many collectives of a group (name, description) a rank has entered by its own agent's count."""


class Progress:
    """The standing of every member of one group. `untrusted` ranks are not believed when they lack an operation."""

    def __init__(
        self, group: GroupView, views: dict[int, RankView], statuses: StatusBook, failed: Failed, counts: Counts
    ) -> None:
        self.group = group
        self.views = views
        self.failed = failed
        self.counts = counts
        self.statuses = statuses
        self.untrusted: set[int] = set()
        self._over_to: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._recorded: dict[int, int] = {}
        self._sure: dict[int, bool] = {}
        for rank in group.ranks:
            view = views.get(rank)
            whole = view is not None and view.full and (bool(group.collectives.get(rank)) or view.from_the_start)
            status = None if whole else statuses.entered(group, rank)
            self._recorded[rank] = max(*group.collectives.get(rank, ()), status or 0, 0)
            self._last[rank], self._sure[rank] = self._stand(rank, status)
        self.proven = self._proven()

    def _stand(self, rank: int, status: int | None) -> tuple[int, bool]:
        """The last sequence known to be entered, and whether it is known that none came after it."""
        view, last = self.views.get(rank), self._recorded[rank]
        agent = self.counts.get((rank, self.group.name, self.group.desc))
        if view is None or view.contradictory:
            return agent or 0, False
        operations = self.group.collectives.get(rank, {})
        if view.full and (operations or view.from_the_start):
            return last, True
        if agent is not None:
            return max(last, agent), True
        listed = view.listed and bool(operations) and not self._over(rank, operations[max(operations)])
        return last, listed or status is not None

    def _proven(self) -> int:
        """The last sequence that some rank finished and nobody can finish unless all have entered it; 0 if none, or
        if nobody knows the members: then several groups may go by one name."""
        if not self.group.certain and not self.group.is_default:
            return 0
        finishers: dict[int, list[int]] = {}
        doubted: set[int] = set()
        for rank, by_sequence in self.group.collectives.items():
            for sequence, operations in by_sequence.items():
                finishers.setdefault(sequence, [])
                if operations[0].name not in SYNCHRONISING:
                    doubted.add(sequence)
                elif self._over(rank, operations):
                    finishers[sequence].append(rank)
        left_out = self._left_out()
        for sequence in sorted(finishers, reverse=True):
            if self._proves(finishers[sequence], sequence):
                return sequence
            if sequence not in doubted and self._is_left_out(left_out, sequence):
                return sequence
        return 0

    def _left_out(self) -> list[tuple[int, int]]:
        """(sequence, rank): up to there the rank has finished all, of those that list only what is unfinished."""
        lists = (
            rank
            for rank in self.group.ranks
            if rank in self.views and self.views[rank].listed and not self.views[rank].full
        )
        return sorted(((self._over_until(rank), rank) for rank in lists), reverse=True)

    def _is_left_out(self, left_out: list[tuple[int, int]], sequence: int) -> bool:
        """Whether some rank has finished it and does not list it, so that it can only have been what others say."""
        until = takewhile(lambda one: one[0] >= sequence, left_out)
        return any(sequence not in self.group.collectives.get(rank, {}) for _, rank in until)

    def _proves(self, finishers: list[int], sequence: int) -> bool:
        """Whether it means anything for those who are still inside that these ranks finished.

        Not if they did another operation under the same number: NCCL may end what is too short. Nor if it is their last
        of gloo, which calls what has failed retired.
        """
        if not finishers:
            return False
        inside = self._inside(sequence)
        asked = {theirs[0].backend: signatures(theirs) for theirs in inside}
        alike = len({(theirs[0].backend, signatures(theirs)) for theirs in inside}) == len(asked)
        for rank in finishers:
            mine = self.operations(rank, sequence)
            doubtful = mine[0].backend == "gloo" and self._last.get(rank, 0) <= sequence
            if not inside or (not doubtful and alike and asked.get(mine[0].backend) in {None, signatures(mine)}):
                return True
        return False

    def _inside(self, sequence: int) -> list[list[Operation]]:
        """The entries of those who have not finished it."""
        entries = (
            (rank, by_sequence[sequence])
            for rank, by_sequence in self.group.collectives.items()
            if sequence in by_sequence
        )
        return [operations for rank, operations in entries if not self._over(rank, operations)]

    def entered(self, rank: int, sequence: int) -> bool | None:
        """Whether the rank entered the group's collective of this sequence; None when nobody can know."""
        if sequence <= self._last[rank]:
            return True
        return False if self._sure[rank] and rank not in self.untrusted else None

    def last(self, rank: int) -> int:
        """The last sequence the rank is known to have entered; 0 for none."""
        return self._last[rank]

    def outdated(self) -> set[int]:
        """Ranks whose dump lacks an operation that a peer finished, which takes all: their dump is older than it."""
        return {rank for rank in self.group.ranks if self.proven > self._last[rank] and self._sure[rank]}

    def operations(self, rank: int, sequence: int) -> list[Operation]:
        """What the rank recorded under this sequence."""
        mine = self.group.collectives.get(rank)
        if not mine:
            return []
        found = mine.get(sequence)
        if found is None:
            found = self.views[rank].history.find(self.group.key, sequence) if sequence < max(mine) else []
        return found

    def recorded(self, rank: int, *, before: int, last: int) -> list[int]:
        """The last sequences below `before` that the rank recorded, so many at most; sorted."""
        if not self.group.collectives.get(rank):
            return []
        return sorted(sequence for sequence in self.views[rank].history.sequences(self.group.key) if sequence < before)[
            -last:
        ]

    def finished(self, rank: int, sequence: int) -> bool:
        """Whether the rank is known to have finished it: recorded so, or a later one of the group (they end in order).
        That it is not recorded any more proves nothing: the ring may be shorter than what is unfinished."""
        return sequence <= self._over_until(rank)

    def _over_until(self, rank: int) -> int:
        """The last sequence that the rank is known to have finished, before which it has finished all; 0 for none."""
        known = self._over_to.get(rank)
        if known is None:
            mine = self.group.collectives.get(rank, {})
            known = max((sequence for sequence in mine if self._over(rank, mine[sequence])), default=0)
            first_open = min((sequence for sequence in mine if not self._over(rank, mine[sequence])), default=0)
            told = self._told_completed(rank)
            known = max(known, told if not first_open else min(told, first_open - 1))
            self._over_to[rank] = known
        return known

    def _told_completed(self, rank: int) -> int:
        """The last sequence that the rank has finished by its pg_status, or by listing only what is unfinished."""
        view, completed = self.views.get(rank), self.statuses.completed(self.group, rank)
        if view is None or view.full or not view.listed:
            return completed or 0
        # The ring may have dropped some of what is unfinished, if all that it holds is: then pg_status is asked.
        if _is_unbroken(view):
            return completed or 0
        return self._recorded.get(rank, 0)

    def _over(self, rank: int, operations: list[Operation]) -> bool:
        """Whether the entries of one sequence are over by the rank's own record and report."""
        return all(finished(operation) and (rank, operation.record_id) not in self.failed for operation in operations)

    def pending(self, rank: int) -> list[int]:
        """Sequences that the rank is inside of, by its own record; sorted."""
        mine = self.group.collectives.get(rank, {})
        return sorted(sequence for sequence, operations in mine.items() if not self._over(rank, operations))

    def stuck(self, rank: int) -> int | None:
        """The first sequence that the rank is inside of and that no peer's progress proves to be over."""
        return next((sequence for sequence in self.pending(rank) if sequence > self.proven), None)

    def lagging(self, rank: int) -> int:
        """How many operations the rank's record calls unfinished although its peers finished them with it."""
        return sum(sequence <= self.proven for sequence in self.pending(rank))


def _is_unbroken(view: RankView) -> bool:
    """Whether the operations that are left have consecutive numbers, and not from the first one on."""
    if not view.operations:
        return False
    first, last = view.operations[0].record_id, view.operations[-1].record_id
    return 0 < first == last - len(view.operations) + 1
