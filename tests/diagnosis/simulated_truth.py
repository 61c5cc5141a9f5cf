"""The truth about a simulated program, read from what every rank really did.

`Truth.culprits` are the ranks that a diagnosis with all the evidence must name; `may` are those it may name without
naming an innocent; `untellable` says why nobody may be certain even with all the evidence, else it is empty.
"""

from collections import Counter
from dataclasses import dataclass

from simulator import Entry, Outcome

__all__ = ["Truth", "truth_of", "wait_for"]

MISMATCH = {"wrong-op": "op-mismatch", "wrong-shape": "shape-mismatch", "wrong-dtype": "dtype-mismatch"}


@dataclass(frozen=True)
class Truth:
    """What happened. kinds: the words of `HangKind` that are right."""

    hung: bool
    kinds: frozenset[str] = frozenset()
    culprits: frozenset[int] = frozenset()
    may: frozenset[int] = frozenset()
    untellable: str = ""


@dataclass(frozen=True)
class _Scene:
    """Parts of the truth that the rules are about."""

    edges: dict[int, set[int]]
    by_collective: frozenset[int]
    by_p2p: frozenset[int]
    idle: frozenset[int]
    split: tuple[tuple[frozenset[int], bool, str], ...]
    """Of each mismatch: the minority, whether it is one, and its kind."""
    cycle: frozenset[int]


def truth_of(outcome: Outcome) -> Truth:
    """The truth of a run with at most one fault, or with several holds."""
    if not outcome.hung:
        return Truth(hung=False)
    scene = _look(outcome)
    kinds = {fault.kind for fault in outcome.faults}
    if kinds <= {"hold", "exit", "kill"}:
        return _absence(outcome, scene)
    if kinds == {"stall"}:
        # What is wrong with a pair whose both sides are there is not said by either.
        return Truth(hung=True, kinds=frozenset({"all-joined"}), untellable="everybody joined and nobody finished")
    if kinds <= set(MISMATCH):
        return _mismatch(scene, frozenset(fault.rank for fault in outcome.faults))
    return _disorder(outcome, scene)


def _absence(outcome: Outcome, scene: _Scene) -> Truth:
    kinds = {"rank-absent"} if scene.by_collective & scene.idle else set()
    kinds |= {"p2p-unmatched"} if scene.by_p2p & scene.idle else set()
    several = len(outcome.faults) > 1 and outcome.lookahead > 1
    culprits = frozenset() if several else scene.idle
    why = "two absent ranks, and others enqueued beyond the first of them" if several else ""
    return Truth(hung=True, kinds=frozenset(kinds), culprits=culprits, may=scene.idle, untellable=why)


def _mismatch(scene: _Scene, faulty: frozenset[int]) -> Truth:
    (minority, decided, kind), *_ = scene.split
    if decided:
        return Truth(hung=True, kinds=frozenset({kind}), culprits=minority, may=minority)
    return Truth(hung=True, kinds=frozenset({kind}), may=faulty, untellable="as many did one thing as the other")


def _disorder(outcome: Outcome, scene: _Scene) -> Truth:
    """A rank left a step out or swapped two: it shows as absence, as a mismatch, as a cycle or as several of them."""
    kinds = {kind for _, _, kind in scene.split}
    may = scene.cycle | scene.idle
    kinds |= {"order-inversion", "all-joined"} if scene.cycle else set()
    kinds |= set() if kinds or may else {"all-joined"}
    kinds |= {"rank-absent"} if scene.by_collective & may else set()
    kinds |= {"p2p-unmatched"} if scene.by_p2p & may else set()
    for minority, decided, _ in scene.split:
        may |= minority if decided else frozenset()
    mixed = bool(scene.cycle) + bool(scene.idle) + len(scene.split) != 1 or outcome.lookahead > 1
    decided = not scene.cycle and not mixed and bool(may)
    why = "" if decided else "a cycle, a tie, or several things at once"
    return Truth(True, frozenset(kinds), may if decided else frozenset(), may, why)


def _look(outcome: Outcome) -> _Scene:
    edges, by_collective, by_p2p = wait_for(outcome)
    awaited = frozenset(by_collective | by_p2p)
    idle = frozenset(rank for rank in awaited if not _pending(outcome, rank))
    front, *_ = wait_for(outcome, front_only=True)
    return _Scene(edges, frozenset(by_collective), frozenset(by_p2p), idle, tuple(_splits(outcome)), _cycle(front))


def _pending(outcome: Outcome, rank: int) -> list[Entry]:
    return [entry for entry in outcome.entries[rank] if entry.pending]


def wait_for(outcome: Outcome, *, front_only: bool = False) -> tuple[dict[int, set[int]], set[int], set[int]]:
    """Who waits for whom, and which ranks are awaited by a collective and which by a send or receive.

    A rank waits for those that have not issued their part of a step it is in. With front_only it waits, in its first
    pending step alone, also for those that issued it behind another step that is pending.
    """
    edges: dict[int, set[int]] = {rank: set() for rank in range(outcome.program.world)}
    awaited: tuple[set[int], set[int]] = (set(), set())
    for rank in edges:
        for entry in _pending(outcome, rank)[: 1 if front_only else None]:
            absent = {peer for peer in _partners(entry, rank) if not _there(outcome, entry, rank, peer, front_only)}
            edges[rank] |= absent
            awaited[entry.step.p2p].update(absent)
    return edges, *awaited


def _partners(entry: Entry, rank: int) -> set[int]:
    return {part.peer for part in entry.step.parts} or set(entry.step.team.ranks) - {rank}


def _there(outcome: Outcome, entry: Entry, rank: int, peer: int, executing: bool) -> bool:
    """Whether the peer issued its part of the entry."""
    step = entry.step
    theirs = [one for one in outcome.entries[peer] if one.step.team == step.team and one.step.p2p == step.p2p]
    if executing:
        theirs = [one for one in theirs if one.executed]
    if not step.p2p:
        return any(one.sequence == entry.sequence for one in theirs)
    for part in step.parts:
        if part.peer == peer:
            nth = _nth(outcome.entries[rank], entry, peer, part.send)
            if sum(p.peer == rank and p.send != part.send for one in theirs for p in one.step.parts) < nth:
                return False
    return True


def _nth(entries: tuple[Entry, ...], entry: Entry, peer: int, send: bool) -> int:
    """The how manieth of its pair this part is, from 1."""
    count = 0
    for one in entries:
        if one.step.team == entry.step.team:
            count += sum(part.peer == peer and part.send == send for part in one.step.parts)
        if one is entry:
            break
    return count


def _splits(outcome: Outcome) -> list[tuple[frozenset[int], bool, str]]:
    """Every collective whose members, as far as they came, did not do the same. A root is not recorded."""
    met: dict[tuple[object, int], dict[int, Entry]] = {}
    for rank, entries in enumerate(outcome.entries):
        for entry in entries:
            if entry.pending and not entry.step.p2p:
                met.setdefault((entry.step.team, entry.sequence), {})[rank] = entry
    found = []
    for _, members in sorted(met.items(), key=lambda item: min(e.created for e in item[1].values())):
        votes = Counter(entry.step.signature[:3] for entry in members.values())
        if len(votes) > 1:
            (best, count), (_, second) = votes.most_common(2)
            minority = frozenset(rank for rank, entry in members.items() if entry.step.signature[:3] != best)
            decided = count > second and count * 2 > len(members)
            ops, shapes = ({signature[i] for signature in votes} for i in (0, 1))
            kind = "op-mismatch" if len(ops) > 1 else "shape-mismatch" if len(shapes) > 1 else "dtype-mismatch"
            found.append((minority, decided, kind))
    return found


def _cycle(edges: dict[int, set[int]]) -> frozenset[int]:
    """The ranks that wait, over others, for themselves."""
    reach = {rank: set(others) for rank, others in edges.items()}
    for middle, beyond in reach.items():
        for mine in reach.values():
            if middle in mine:
                mine.update(beyond)
    return frozenset(rank for rank, mine in reach.items() if rank in mine)
