"""Members of a group that entered one operation (group and sequence) with different ideas of what it is."""

from collections import Counter
from dataclasses import dataclass, replace

from hangdrill.diagnosis.progress import Progress
from hangdrill.diagnosis.scene import Scene, StuckOp
from hangdrill.diagnosis.signatures import Signature, Signatures, signatures
from hangdrill.model.diagnosis import HangKind

__all__ = ["Mismatch", "find_earlier_mismatch", "find_mismatch"]

LOOKED_BACK = 64
"""So many operations of a group before the one in question are compared."""
SIBLING_HISTORY = 4
"""So many operations must parallel groups have had in common before one is taken for the measure of the other."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One operation that members entered differently.

    meant: what the majority did, if there is one. minority is empty when no side is sure to have more than half of
    those who entered, whoever is not heard of, and the parallel groups of the same mesh do not tell which side was
    meant.
    """

    op: StuckOp
    kind: HangKind
    signatures: tuple[tuple[Signature, tuple[int, ...]], ...]
    minority: frozenset[int]
    meant: str


def find_mismatch(scene: Scene, op: StuckOp) -> Mismatch | None:
    """What the members did differently in a stuck collective, if they did."""
    if op.p2p:
        return None
    progress = scene.progress_of(op.group)
    entries = {rank: progress.operations(rank, op.sequence) for rank in op.group.ranks if rank not in scene.untrusted}
    entries = {rank: operations for rank, operations in entries.items() if operations}
    if len({operation.backend for operations in entries.values() for operation in operations}) > 1:
        return None
    by_signature: dict[Signatures, list[int]] = {}
    for rank, operations in entries.items():
        by_signature.setdefault(signatures(operations), []).append(rank)
    if len(by_signature) < 2:
        return None
    votes = Counter({signature: len(ranks) for signature, ranks in by_signature.items()})
    (best, count), *_ = votes.most_common(1)
    unheard = sum(progress.entered(rank, op.sequence) is not False for rank in op.group.ranks if rank not in entries)
    decided = count * 2 > len(entries) + unheard
    if not decided and not unheard:
        meant = _as_siblings_do(scene, op)
        best, decided = meant or best, meant in by_signature
    return Mismatch(
        op=op,
        kind=_kind(list(by_signature)),
        signatures=tuple(sorted((signature[0], tuple(sorted(ranks))) for signature, ranks in by_signature.items())),
        minority=frozenset(rank for signature, ranks in by_signature.items() if signature != best for rank in ranks)
        if decided
        else frozenset(),
        meant=best[0][0] if decided else op.op,
    )


def _as_siblings_do(scene: Scene, op: StuckOp) -> Signatures | None:
    """What the groups of the same description and size did under this sequence, if they all did the same, and had
    always done what this group did before: the parallel groups of a device mesh run one program."""
    if op.group.is_default or not op.group.desc:
        return None
    siblings = [
        group for group in scene.groups if group.desc == op.group.desc and len(group.ranks) == len(op.group.ranks)
    ]
    histories = {id(group): _history(scene.progress_of(group), op.sequence) for group in siblings}
    mine = histories.pop(id(op.group))
    found = set()
    for theirs in histories.values():
        now = theirs.pop(op.sequence, set())
        earlier = theirs.keys() & mine.keys()
        if len(earlier) < SIBLING_HISTORY or len(now) != 1 or any(theirs[one] != mine[one] for one in earlier):
            return None
        found |= now
    return found.pop() if len(found) == 1 else None


def _history(progress: Progress, until: int) -> dict[int, set[Signatures]]:
    """The signatures of the last sequences up to `until`."""
    found: dict[int, set[Signatures]] = {}
    for rank in progress.group.collectives:
        for sequence in progress.recorded(rank, before=until + 1, last=LOOKED_BACK):
            found.setdefault(sequence, set()).add(signatures(progress.operations(rank, sequence)))
    return found


def find_earlier_mismatch(scene: Scene, op: StuckOp) -> Mismatch | None:
    """The first mismatch not long before a stuck collective that all have entered.

    gloo calls what has failed finished, and NCCL may finish two operations that have nothing to do with each other; but
    of NCCL, another shape or dtype that did finish may have been harmless.
    """
    if op.p2p:
        return None
    progress = scene.progress_of(op.group)
    recorded = {rank: progress.recorded(rank, before=op.sequence, last=LOOKED_BACK) for rank in op.group.ranks}
    for sequence in sorted({sequence for sequences in recorded.values() for sequence in sequences}):
        waiting = frozenset(rank for rank, sequences in recorded.items() if sequence in sequences)
        first = progress.operations(min(waiting), sequence)[0]
        found = find_mismatch(scene, replace(op, op=first.name, sequence=sequence, waiting=waiting))
        if found is not None and (first.backend == "gloo" or found.kind is HangKind.OP_MISMATCH):
            return found
    return None


def _kind(signatures: list[Signatures]) -> HangKind:
    if len({tuple(name for name, _, _ in parts) for parts in signatures}) > 1:
        return HangKind.OP_MISMATCH
    if len({tuple(elements for _, elements, _ in parts) for parts in signatures}) > 1:
        return HangKind.SHAPE_MISMATCH
    return HangKind.DTYPE_MISMATCH
