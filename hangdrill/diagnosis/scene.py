"""Where everybody stands: every operation that some rank is inside of, who is in it, who is not, and who may be.

This is the whole input of the judgement; it names nobody.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from hangdrill.diagnosis.groups import GroupView
from hangdrill.diagnosis.history import finished
from hangdrill.diagnosis.progress import Counts, Failed, Progress
from hangdrill.diagnosis.status import StatusBook
from hangdrill.diagnosis.transfers import Transfer, find_transfers
from hangdrill.diagnosis.views import RankView
from hangdrill.model.dump import Operation

__all__ = ["Scene", "StuckOp", "look"]

FROZEN_OPERATIONS = 4
"""So many operations are unfinished in a rank's record, though its peers finished them with it: it stood still."""


LAST_SHARED = 32
"""So far back an operation is looked for that ranks have in common."""


@dataclass(frozen=True, slots=True)
class StuckOp:
    """An operation that nobody's progress proves to be over.

    waiting: ranks inside of it; front: those for which it is the first such operation of its group. absent: members
    that are known not to have entered it. unknown: members of whom nobody can know. record_id: of the entry, on the
    rank that has the lowest: ranks number what they do, and mostly do the same, so it says how early this comes in the
    program, whatever the hosts' clocks say. firm: the record says that it is unfinished (nccl2's batches are recorded
    as finished at once).
    """

    group: GroupView
    op: str
    sequence: int
    p2p: bool
    waiting: frozenset[int]
    front: frozenset[int]
    absent: frozenset[int]
    unknown: frozenset[int]
    created_ns: int
    record_id: int
    firm: bool = True

    @property
    def joined(self) -> bool:
        """Whether everybody is known to have entered it."""
        return not self.absent and not self.unknown

    @property
    def sort_key(self) -> tuple[int, tuple[bool, str, str, tuple[int, ...]], bool, int, tuple[int, ...]]:
        """Oldest first; never a tie between two operations."""
        return (self.created_ns, self.group.sort_key, self.p2p, self.sequence, tuple(sorted(self.waiting)))


@dataclass(slots=True)
class Scene:
    """All stuck operations, oldest first, and what is to be known about the ranks.

    late: they entered a stuck operation after the timeout of those who waited in it, so many seconds after the first.
    outdated: their dump is older than what their peers finished with them. frozen: their record stood still while the
    peers went on with them. doubtful: they may be inside of something that the recorder does not show. unsure: they are
    inside of an operation of a group whose members nobody knows. lagging: they are inside of a send or receive that is
    over for its other side.
    """

    views: dict[int, RankView]
    groups: list[GroupView]
    progress: dict[int, Progress]
    stuck: list[StuckOp] = field(default_factory=list)
    untrusted: set[int] = field(default_factory=set)
    outdated: set[int] = field(default_factory=set)
    frozen: dict[int, int] = field(default_factory=dict)
    late: dict[int, float] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)
    unsure: dict[int, str] = field(default_factory=dict)
    lagging: set[int] = field(default_factory=set)

    @property
    def inside(self) -> set[int]:
        """Ranks that are known to be inside of an operation that is not over."""
        return {rank for op in self.stuck if op.firm for rank in op.waiting} | self.unsure.keys()

    def progress_of(self, group: GroupView) -> Progress:
        """The standing of a group's members."""
        return self.progress[id(group)]


def look(views: dict[int, RankView], groups: list[GroupView], failed: Failed, counts: Counts) -> Scene:
    """Build the scene from what the ranks recorded, and what their agents counted."""
    statuses = StatusBook(views, groups)
    progress = {id(group): Progress(group, views, statuses, failed, counts) for group in groups}
    scene = Scene(views=views, groups=groups, progress=progress)
    for one in progress.values():
        scene.outdated |= one.outdated()
    contradictory = {rank for rank, view in views.items() if view.contradictory}
    scene.frozen = _frozen(scene, scene.outdated | contradictory)
    scene.untrusted = scene.outdated | contradictory
    for one in progress.values():
        one.untrusted = scene.untrusted
    for group in groups:
        _add_collectives(scene, group, progress[id(group)])
        _add_transfers(scene, group)
    scene.doubtful.update(_forgotten(scene))
    scene.stuck.sort(key=lambda op: op.sort_key)
    return scene


def _frozen(scene: Scene, untrusted: set[int]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for group in scene.groups:
        progress = scene.progress_of(group)
        for rank, operations in group.collectives.items():
            if rank not in untrusted and any(entries[0].backend != "gloo" for entries in operations.values()):
                counts[rank] = counts.get(rank, 0) + progress.lagging(rank)
    return {rank: count for rank, count in sorted(counts.items()) if count >= FROZEN_OPERATIONS}


def _speaks(scene: Scene, rank: int) -> bool:
    """Whether the rank's own record of what is unfinished can be believed."""
    return rank not in scene.untrusted and rank not in scene.frozen


def _add_collectives(scene: Scene, group: GroupView, progress: Progress) -> None:
    fronts: dict[int, set[int]] = {}
    waiting: dict[int, set[int]] = {}
    for rank in group.collectives:
        if not _speaks(scene, rank):
            continue
        stuck = progress.stuck(rank)
        if stuck is None:
            continue
        if not group.certain and not group.is_default:
            name = progress.operations(rank, stuck)[0].name
            scene.unsure[rank] = f"{name} #{stuck} of {group.desc or group.name}"
            continue
        fronts.setdefault(stuck, set()).add(rank)
        for sequence in progress.pending(rank):
            waiting.setdefault(sequence, set()).add(rank)
    for sequence, at_front in fronts.items():
        late = _late(scene, progress, sequence)
        for rank, seconds in late.items():
            scene.late[rank] = max(seconds, scene.late.get(rank, 0.0))
        front = at_front - late.keys()
        inside = waiting[sequence] - late.keys()
        if front:
            scene.stuck.append(_collective(progress, sequence, frozenset(front), frozenset(inside), late.keys()))


def _late(scene: Scene, progress: Progress, sequence: int) -> dict[int, float]:
    """Ranks that entered after the timeout of the first was over, and by how many seconds; a minority, or none.

    Clocks of hosts differ, so each rank's own is asked how long after the last operation that all of them share.
    """
    entries = {
        rank: operations[0]
        for rank in progress.group.ranks
        if rank not in scene.untrusted and (operations := progress.operations(rank, sequence))
    }
    if not entries:  # a damaged dump may claim an operation of a group whose members it is not among
        return {}
    limit_ns = max(operation.timeout_ms for operation in entries.values()) * 1_000_000
    created = [operation.created_ns for operation in entries.values()]
    if not 0 < limit_ns < max(created) - min(created):
        return {}
    start = _last_shared(progress, entries, sequence)
    if start is None:
        return {}
    after = {rank: entry.created_ns - progress.operations(rank, start)[0].created_ns for rank, entry in entries.items()}
    first = min(after.values())
    late = {rank: (took - first) / 1e9 for rank, took in after.items() if took - first > limit_ns}
    return late if len(late) * 2 < len(entries) or len(entries) == 2 else {}


def _last_shared(progress: Progress, ranks: Iterable[int], before: int) -> int | None:
    """The last sequence before that one which all of the ranks recorded, if it is not long ago."""
    ranks = list(ranks)
    candidates = progress.recorded(ranks[0], before=before, last=LAST_SHARED)
    return next((one for one in reversed(candidates) if all(progress.operations(rank, one) for rank in ranks)), None)


def _collective(
    progress: Progress, sequence: int, front: frozenset[int], waiting: frozenset[int], late: Set[int]
) -> StuckOp:
    group = progress.group
    others = [rank for rank in group.ranks if rank not in waiting]
    standing = {rank: rank not in late and progress.entered(rank, sequence) for rank in others}
    operations = [progress.operations(rank, sequence)[0] for rank in sorted(waiting)]
    return StuckOp(
        group=group,
        op=operations[0].name,
        sequence=sequence,
        p2p=False,
        waiting=waiting,
        front=front,
        absent=frozenset(rank for rank, entered in standing.items() if entered is False),
        unknown=frozenset(rank for rank, entered in standing.items() if entered is None),
        created_ns=min(operation.created_ns for operation in operations),
        record_id=min(operation.record_id for operation in operations),
    )


def _add_transfers(scene: Scene, group: GroupView) -> None:
    for transfer in find_transfers(group, scene.views, scene.untrusted):
        if not _speaks(scene, transfer.rank):
            continue
        if transfer.over_at_peer:
            scene.lagging.add(transfer.rank)
        elif transfer.proven:
            scene.stuck.append(_transfer(group, transfer))
        elif not transfer.posted or _is_last(scene.views[transfer.rank], transfer.operation):
            scene.doubtful.add(transfer.rank)


def _is_last(view: RankView, operation: Operation) -> bool:
    return operation.record_id == view.operations[-1].record_id


def _transfer(group: GroupView, transfer: Transfer) -> StuckOp:
    peers = group.ranks if transfer.peer is None else (transfer.peer,)
    others = frozenset(peers) - {transfer.rank}
    only = frozenset({transfer.rank})
    return StuckOp(
        group=group,
        op=transfer.operation.name,
        sequence=transfer.operation.sequence,
        p2p=True,
        waiting=only,
        front=only,
        absent=others if transfer.posted is False else frozenset(),
        unknown=others if transfer.posted is None else frozenset(),
        created_ns=transfer.operation.created_ns,
        record_id=transfer.operation.record_id,
        firm=transfer.proven,
    )


def _forgotten(scene: Scene) -> Iterable[int]:
    """Ranks whose ring buffer may have dropped an operation that is still unfinished: by their pg_status some group
    has completed less than what comes before the first unfinished collective that is left (nccl-legacy notes what has
    ended one operation later than it takes it off the list). Of groups with sends and
    receives pg_status tells less (nccl-legacy counts them by themselves); then it is enough that nothing finished is
    left before what is unfinished."""
    legacy = any(operation.backend == "nccl" for view in scene.views.values() for operation in view.operations[-1:])
    for rank, view in scene.views.items():
        if view.full and view.first_record == 0:
            continue
        first: dict[str, int] = {}
        for operation in view.operations:
            if operation.p2p:
                first[str(operation.pg_id)] = 0
            elif not finished(operation):
                first.setdefault(str(operation.pg_id), operation.op_id)
        bare = view.full and view.history.first_open == 0 and (0 in first.values() or not view.statuses)
        lag = 1 + (legacy and not view.full)
        if bare or any(
            s.last_completed < first.get(s.pg_id, s.last_enqueued + 1) - lag for s in view.statuses.values()
        ):
            yield rank
