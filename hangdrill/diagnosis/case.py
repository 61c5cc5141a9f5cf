"""What the steps of the judgement look at and what they answer with: the case, and the words they share."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from hangdrill.diagnosis.graph import Ends, follow
from hangdrill.diagnosis.groups import distinct
from hangdrill.diagnosis.history import NEW_BACKENDS
from hangdrill.diagnosis.mismatch import Mismatch, find_mismatch
from hangdrill.diagnosis.reports import failed_at_or_after, failed_in_transfer, fell_out, suspicious
from hangdrill.diagnosis.scene import Scene, StuckOp
from hangdrill.diagnosis.views import RankView
from hangdrill.diagnosis.words import name_operation, name_ranks
from hangdrill.model.diagnosis import Culprit, HangKind, HangVerdict, StuckGroup, StuckOperation
from hangdrill.model.run import RankPull

__all__ = ["Case", "Judgement", "beside", "build_case", "may_hide", "stuck_operation", "where"]


@dataclass(slots=True)
class Judgement:
    """The part of a Diagnosis that is judged rather than counted."""

    verdict: HangVerdict
    kind: HangKind | None = None
    culprits: tuple[Culprit, ...] = ()
    stuck: StuckOperation | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a step may look at."""

    scene: Scene
    reports: Mapping[int, RankPull]
    expected: frozenset[int] | None
    ends: Ends
    mismatches: tuple[Mismatch, ...]
    transfers_hidden: bool
    transfers_of_nccl2: bool
    written: frozenset[int]

    @property
    def missing(self) -> frozenset[int]:
        """Ranks without a dump: of those expected or, when nobody said who they are, of those mentioned."""
        views = self.scene.views
        if self.expected is not None:
            return self.expected - views.keys()
        mentioned = {rank for group in self.scene.groups for rank in group.ranks}
        mentioned.update(*distinct(ranks for view in views.values() for ranks in view.mentioned))
        return frozenset(mentioned) - views.keys()

    @property
    def busy(self) -> set[int]:
        """Ranks inside of something, by their record or by their report."""
        fallen = {rank for rank, report in self.reports.items() if fell_out(report)}
        return self.scene.inside | (fallen - self.late)

    @property
    def counted_inside(self) -> set[int]:
        """Ranks without a dump that by their agents' counts have entered what others are still inside of."""
        return {
            rank
            for op in self.scene.stuck
            if op.firm and not op.p2p
            for rank in op.group.ranks
            if rank not in self.scene.views and rank not in op.waiting | op.absent | op.unknown
        }

    @property
    def late(self) -> set[int]:
        """Ranks that entered what they were awaited in after the timeout or after their dump, and then failed in it."""
        return self.scene.late.keys() | {
            rank
            for op in self.scene.stuck
            for rank in op.absent
            if not op.p2p
            if rank in self.reports
            if failed_at_or_after(self.reports[rank], (op.group.name, op.group.desc), op.sequence)
        }


def build_case(
    scene: Scene, reports: Mapping[int, RankPull], expected: frozenset[int] | None, written: frozenset[int]
) -> Case:
    """Follow the waits and compare the operations of a scene."""
    mismatches = tuple(found for op in scene.stuck if op.firm and (found := find_mismatch(scene, op)) is not None)
    hidden = _transfers_hidden(scene, reports.values())
    return Case(
        scene=scene,
        reports=reports,
        expected=expected,
        ends=follow(scene.stuck),
        mismatches=mismatches,
        transfers_hidden=hidden,
        transfers_of_nccl2=_transfers_of_nccl2(scene),
        written=written,
    )


def _transfers_hidden(scene: Scene, reports: Collection[RankPull]) -> bool:
    """Whether gloo's op ids or the agents' counts show sends and receives, none of which gloo records."""
    shown = any(
        operation.backend == "gloo" and operation.op_id not in {0, operation.sequence}
        for view in scene.views.values()
        for operation in view.operations
    )
    if shown or any("Gloo" in count.backend_class and count.p2p for report in reports for count in report.counts):
        return True
    backends = {operation.backend for view in scene.views.values() for operation in view.operations}
    return backends <= {"gloo"} and any(failed_in_transfer(report) for report in reports)


def may_hide(case: Case, rank: int) -> bool:
    """Whether a rank that seems idle may be inside of an operation that its record does not show: a send or receive of
    gloo, a batch of nccl2, which is recorded as completed and so left out of active operations, or what a cut file
    lost.

    Not if its process says why it is away, nor if its agent has counted nothing since its last recorded operation.
    """
    view, report = case.scene.views[rank], case.reports.get(rank)
    if report is not None and suspicious(report):
        return False
    if view.cut and not _finished_all(view):
        return True
    if case.transfers_hidden:
        return report is None or not _counted_nothing_since(view, report)
    return not view.full and case.transfers_of_nccl2


def _finished_all(view: RankView) -> bool:
    """Whether pg_status, which stands before the operations in a file, says that everything enqueued is completed."""
    statuses = view.statuses.values()
    return bool(statuses) and all(status.last_completed >= status.last_enqueued for status in statuses)


def _counted_nothing_since(view: RankView, report: RankPull) -> bool:
    """Whether the last operation that the agent counted in each group is the last one recorded, by gloo's op ids."""
    last = {(operation.group_name, operation.group_desc): operation.op_id for operation in view.operations}
    counts = ((last.get((count.name, count.desc), 0), count.collectives + count.p2p) for count in report.counts)
    return bool(report.counts) and all(recorded == counted for recorded, counted in counts)


def _transfers_of_nccl2(scene: Scene) -> bool:
    """Whether there were sends or receives of nccl2: recorded, or seen in the op ids (from 0, they count them too)."""
    return any(
        operation.backend in NEW_BACKENDS and (operation.p2p or operation.op_id != operation.sequence - 1)
        for view in scene.views.values()
        for operation in view.operations
    )


def beside(case: Case, named: Iterable[int]) -> list[str]:
    """What else a reader should know."""
    scene = case.scene
    notes = []
    rest = scene.frozen.keys() - set(named)
    if rest:
        notes.append(f"the record of {name_ranks(rest)} stood still while the peers went on")
    if scene.outdated:
        notes.append(f"the dump of {name_ranks(scene.outdated)} is older than what others finished with them")
    missing = case.missing - set(named)
    if missing:
        notes.append(f"{name_ranks(missing)} left no dump: nothing is known of them")
    return notes


def where(op: StuckOp) -> str:
    return name_operation(op.op, op.sequence, op.group.desc or op.group.name)


def stuck_operation(op: StuckOp, *, absent: frozenset[int]) -> StuckOperation:
    group = StuckGroup(name=op.group.name, desc=op.group.desc, ranks=op.group.ranks)
    return StuckOperation(
        group=group,
        op=op.op,
        sequence=op.sequence,
        p2p=op.p2p,
        waiting=tuple(sorted(op.waiting)),
        absent=tuple(sorted(absent)),
    )
