"""Sends and receives, matched pair by pair.

The nth send of one rank to another belongs to the other's nth receive from it; both count within their group. Where
both histories are whole the pairs are counted from the start; else what has finished is taken to have been matched,
and what is unfinished is paired in order. A receive from any source cannot be matched with one sender.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from hangdrill.diagnosis.groups import GroupView
from hangdrill.diagnosis.views import RankView
from hangdrill.model.dump import Operation

__all__ = ["Transfer", "find_transfers"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A send or receive that a rank is inside of, and how its peer stands.

    posted: the peer has issued its part; None when nobody can know. proven: the record itself says that it is
    unfinished, and can be believed: not of nccl2's batches, which are recorded as finished at once, nor of the parts of
    nccl-legacy's, which stay unfinished for good, where the entry of the batch may have been left out.
    over_at_peer: the peer has finished its part.
    """

    rank: int
    peer: int | None
    operation: Operation
    posted: bool | None
    proven: bool
    over_at_peer: bool = False


def find_transfers(group: GroupView, views: dict[int, RankView], untrusted: set[int]) -> list[Transfer]:
    """Every send or receive of the group that is unfinished, or that may be."""
    return [
        transfer
        for rank in sorted(group.p2p)
        if rank not in untrusted
        for transfer in _of_rank(group, views, untrusted, rank)
    ]


def _of_rank(group: GroupView, views: dict[int, RankView], untrusted: set[int], rank: int) -> Iterator[Transfer]:
    history = views[rank].history
    for (_, group_peer), rows in sorted(history.transfers(group.key).items(), key=lambda item: item[1][0]):
        peer = _global(group, group_peer)
        if peer is not None:
            yield from _of_pair(group, (views[rank], views.get(peer)), peer, rows, peer_untrusted=peer in untrusted)
            continue
        for operation in (history.table[row] for row in rows if not history.over(row)):
            proven = not _may_be_a_part(operation, views[rank])
            yield Transfer(rank=rank, peer=None, operation=operation, posted=None, proven=proven)


def _of_pair(
    group: GroupView,
    pair: tuple[RankView, RankView | None],
    peer: int,
    mine: list[int],
    *,
    peer_untrusted: bool,
) -> Iterator[Transfer]:
    """The transfers in the rows `mine`: all that the rank sent to the peer, or all that it received."""
    view, other = pair
    history = view.history
    theirs, any_source = _counterparts(group, view, other, history.table[mine[0]].name)
    whole = view.from_the_start and other is not None and other.from_the_start
    batched: set[int] | None = None
    open_there = sum(not other.history.over(row) for row in theirs) if other is not None else 0
    waiting = 0
    for number, row in enumerate(mine):
        at_once = history.over_at_once(row)
        if history.over(row) and not at_once:
            continue
        operation = history.table[row]
        unproven = at_once or _may_be_a_part(operation, view)
        posted: bool | None
        if whole and not any_source:
            posted = number < len(theirs)
            # What nobody sends, nobody has received, whatever the record says. (A send may be over before its time.)
            unproven = unproven and (posted or operation.name != "recv")
        elif unproven or any_source or other is None:
            posted = None
        else:
            batched = _batched(view, group) if batched is None else batched
            posted = waiting < open_there
            # A send may be over before it is received, if the receive stands behind something else.
            behind = operation.name == "recv" and len(theirs) > open_there and row != history.first_open
            part = operation.sequence in batched or operation.record_id in history.parts
            if part or (not posted and (behind or not (other.full or other.listed))):
                posted = None
        waiting += 1
        if posted is False and peer_untrusted:
            posted = None
        over = bool(posted and whole and not unproven and other is not None and other.history.over(theirs[number]))
        over = over and other is not None and not other.history.over_at_once(theirs[number])
        yield Transfer(view.rank, peer, operation, posted, proven=not unproven, over_at_peer=over)


def _may_be_a_part(operation: Operation, view: RankView) -> bool:
    """Whether it may be a part of a finished batch of nccl-legacy, whose own entry was left out."""
    return operation.backend == "nccl" and not view.full


def _counterparts(group: GroupView, view: RankView, other: RankView | None, name: str) -> tuple[list[int], bool]:
    """The rows of the peer's operations towards the rank in the other direction, and whether it also receives from
    anyone."""
    wanted = "recv" if name == "send" else "send"
    theirs = {} if other is None else other.history.transfers(group.key)
    rows = [rows for (one, peer), rows in theirs.items() if one == wanted and _global(group, peer) == view.rank]
    return sorted(row for some in rows for row in some), wanted == "recv" and ("recv", None) in theirs


def _batched(view: RankView, group: GroupView) -> set[int]:
    """Sequences that several operations share: parts of one batch, which finish together."""
    table = view.history.table
    sequences = [table.sequences[row] for rows in view.history.transfers(group.key).values() for row in rows]
    return {sequence for sequence, count in Counter(sequences).items() if count > 1}


def _global(group: GroupView, peer: int | None) -> int | None:
    return group.ranks[peer] if peer is not None and peer < len(group.ranks) else None
