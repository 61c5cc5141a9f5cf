"""Sends and receives, matched pair by pair.

The nth send of one rank to another belongs to the other's nth receive from it; both count within their group. Where
both histories are whole the pairs are counted from the start; else what has finished is taken to have been matched,
and what is unfinished is paired in order. A receive from any source cannot be matched with one sender.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hangdrill.diagnosis.groups import GroupView
from hangdrill.diagnosis.views import RankView, finished, seems_finished_at_once
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
    pairs: dict[tuple[str, int], list[Operation]] = {}
    for operation in group.p2p[rank]:
        peer = _global(group, operation.peer)
        if peer is None:
            if not finished(operation):
                proven = not _may_be_a_part(operation, views[rank])
                yield Transfer(rank=rank, peer=None, operation=operation, posted=None, proven=proven)
        else:
            pairs.setdefault((operation.name, peer), []).append(operation)
    for (_, peer), mine in sorted(pairs.items(), key=lambda item: item[0]):
        yield from _of_pair(group, (views[rank], views.get(peer)), peer, mine, peer_untrusted=peer in untrusted)


def _of_pair(
    group: GroupView,
    pair: tuple[RankView, RankView | None],
    peer: int,
    mine: list[Operation],
    *,
    peer_untrusted: bool,
) -> Iterator[Transfer]:
    view, other = pair
    rank = view.rank
    theirs, any_source = _counterparts(group, rank, peer, mine[0].name)
    whole = view.from_the_start and other is not None and other.from_the_start
    batched = _batched(group.p2p[rank])
    waiting = 0
    for number, operation in enumerate(mine):
        unproven = seems_finished_at_once(operation) or _may_be_a_part(operation, view)
        if finished(operation) and not seems_finished_at_once(operation):
            continue
        posted: bool | None
        if whole and not any_source:
            posted = number < len(theirs)
        elif unproven or operation.sequence in batched or any_source or other is None:
            posted = None
        else:
            posted = waiting < sum(not finished(part) for part in theirs)
            if not posted and not (other.full or other.listed):
                posted = None
        waiting += 1
        if posted is False and peer_untrusted:
            posted = None
        over = bool(posted and whole and not unproven and finished(theirs[number]))
        over = over and not seems_finished_at_once(theirs[number])
        yield Transfer(rank, peer, operation, posted, proven=not unproven, over_at_peer=over)


def _may_be_a_part(operation: Operation, view: RankView) -> bool:
    """Whether it may be a part of a finished batch of nccl-legacy, whose own entry was left out."""
    return operation.backend == "nccl" and not view.full


def _counterparts(group: GroupView, rank: int, peer: int, name: str) -> tuple[list[Operation], bool]:
    """The peer's operations towards the rank in the other direction, and whether it also receives from anyone."""
    wanted = "recv" if name == "send" else "send"
    theirs = group.p2p.get(peer, [])
    found = [part for part in theirs if part.name == wanted and _global(group, part.peer) == rank]
    return found, wanted == "recv" and any(part.name == "recv" and part.peer is None for part in theirs)


def _batched(operations: list[Operation]) -> set[int]:
    """Sequences that several operations share: parts of one batch, which finish together."""
    seen: set[int] = set()
    twice: set[int] = set()
    for operation in operations:
        (twice if operation.sequence in seen else seen).add(operation.sequence)
    return twice


def _global(group: GroupView, peer: int | None) -> int | None:
    return group.ranks[peer] if peer is not None and peer < len(group.ranks) else None
