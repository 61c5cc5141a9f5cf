"""The judgement over a scene: which hang it is and who, if anybody, is to be named.

In this order, because each step is surer than the next: ranks that the others wait for and that wait for nobody; the
minority of a mismatch; a cycle of waits; everybody inside and nobody done; a rank that left no dump and that all who
did wait for. Whatever is missing turns certainty into "undecided", never into another name.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from hangdrill.diagnosis.graph import Ends, follow
from hangdrill.diagnosis.mismatch import Mismatch, describe, find_mismatch
from hangdrill.diagnosis.reports import (
    died,
    ended_by_signal,
    explain,
    failed_at_or_after,
    failed_in_transfer,
    fell_out,
    left_in_order,
    suspicious,
)
from hangdrill.diagnosis.scene import Scene, StuckOp
from hangdrill.diagnosis.views import RankView
from hangdrill.diagnosis.words import name_operation, name_ranks
from hangdrill.model.diagnosis import Basis, Culprit, HangKind, HangVerdict, StuckGroup, StuckOperation
from hangdrill.model.run import RankPull

__all__ = ["Judgement", "judge"]


@dataclass(slots=True)
class Judgement:
    """The part of a Diagnosis that is judged rather than counted."""

    verdict: HangVerdict
    kind: HangKind | None = None
    culprits: tuple[Culprit, ...] = ()
    stuck: StuckOperation | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Case:
    """Everything a step may look at."""

    scene: Scene
    reports: Mapping[int, RankPull]
    expected: frozenset[int] | None
    ends: Ends
    mismatches: tuple[Mismatch, ...]
    transfers_hidden: bool

    @property
    def missing(self) -> frozenset[int]:
        """Ranks without a dump: of those expected or, when nobody said who they are, of those mentioned."""
        views = self.scene.views
        mentioned = {rank for group in self.scene.groups for rank in group.ranks}
        mentioned.update(*(view.seen_ranks for view in views.values()))
        return frozenset(mentioned if self.expected is None else self.expected) - views.keys()

    @property
    def busy(self) -> set[int]:
        """Ranks inside of something, by their record or by their report."""
        fallen = {rank for rank, report in self.reports.items() if fell_out(report)}
        return self.scene.inside | (fallen - self.late)

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

    @property
    def idle(self) -> set[int]:
        """Ranks that are there, are believed and are inside of nothing."""
        scene = self.scene
        return {
            rank
            for rank, view in scene.views.items()
            if not view.mute and rank not in scene.untrusted and rank not in scene.frozen and rank not in self.busy
        }


def judge(scene: Scene, reports: Mapping[int, RankPull], expected: frozenset[int] | None) -> Judgement:
    """The judgement. expected: all ranks of the job, None when nobody said who they are."""
    firm = [op for op in scene.stuck if op.firm]
    mismatches = tuple(found for op in firm if (found := find_mismatch(scene, op)) is not None)
    case = _Case(scene, reports, expected, follow(scene.stuck), mismatches, _transfers_hidden(scene, reports.values()))
    if not firm and not scene.unsure:
        return _nothing_pending(case)
    for step in (_observed, _mismatched, _cycle, _died_inside, _joined, _inferred):
        judgement = step(case)
        if judgement is not None:
            return judgement
    return _undecided(case)


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


def _observed(case: _Case) -> Judgement | None:
    """Ranks that are awaited and wait for nobody, and ranks whose record stood still."""
    scene = case.scene
    named = case.ends.ranks - case.busy - scene.doubtful - scene.untrusted - scene.frozen.keys()
    named = frozenset(rank for rank in named if not _may_hide(case, rank))
    frozen = frozenset(scene.frozen)
    if not named and not frozen:
        return None
    decided = [mismatch for mismatch in case.mismatches if mismatch.minority]
    op = _best_op(scene.stuck, named or frozen)
    if op is None or (decided and decided[0].op.sort_key < op.sort_key):
        return None
    culprits = [_observed_culprit(case, rank) for rank in named]
    culprits += [_frozen_culprit(case, rank) for rank in frozen]
    return Judgement(
        verdict=HangVerdict.HANG,
        kind=HangKind.P2P_UNMATCHED if op.p2p else HangKind.RANK_ABSENT,
        culprits=tuple(sorted(culprits, key=lambda culprit: culprit.rank)),
        stuck=_stuck(op, absent=op.absent),
        notes=_beside(case, named | frozen),
    )


def _may_hide(case: _Case, rank: int) -> bool:
    """Whether a rank that seems idle may be inside of a send or receive that its record does not show: gloo's, or a
    batch of nccl2, which is recorded as completed and so left out of active operations.

    Not if its process says why it is away, nor if its agent has counted nothing since its last recorded operation.
    """
    view, report = case.scene.views[rank], case.reports.get(rank)
    if report is not None and suspicious(report):
        return False
    if case.transfers_hidden:
        return report is None or not _counted_nothing_since(view, report)
    return not view.full and _transfers_of_nccl2(case.scene)


def _counted_nothing_since(view: RankView, report: RankPull) -> bool:
    """Whether the last operation that the agent counted in each group is the last one recorded, by gloo's op ids."""
    last = {(operation.group_name, operation.group_desc): operation.op_id for operation in view.operations}
    counts = ((last.get((count.name, count.desc), 0), count.collectives + count.p2p) for count in report.counts)
    return bool(report.counts) and all(recorded == counted for recorded, counted in counts)


def _transfers_of_nccl2(scene: Scene) -> bool:
    """Whether there were sends or receives of nccl2: recorded, or seen in the op ids (from 0, they count them too)."""
    return any(
        operation.backend == "nccl2" and (operation.p2p or operation.op_id != operation.sequence - 1)
        for view in scene.views.values()
        for operation in view.operations
    )


def _observed_culprit(case: _Case, rank: int) -> Culprit:
    op = next(op for op in case.scene.stuck if rank in op.absent)
    where = _where(op)
    if op.p2p:
        why = f"it never posted the other side of {where} of {name_ranks(op.waiting)}"
    else:
        last = min(case.scene.progress_of(op.group).last(rank), op.sequence - 1)
        group = op.group.desc or op.group.name
        why = f"it never entered {where}: its last operation there is #{last}" if last else f"it never entered {where}"
        why += "" if last else f" nor any other operation of {group}"
        if rank in case.scene.late:
            why = f"it entered {where} {case.scene.late[rank]:.1f} s after the first, when the timeout was over"
    reason = explain(case.reports.get(rank))
    return Culprit(rank=rank, basis=Basis.OBSERVED, why=f"{why}; {reason}" if reason else why)


def _frozen_culprit(case: _Case, rank: int) -> Culprit:
    count = case.scene.frozen[rank]
    why = (
        f"its record calls {count} operations unfinished that its peers finished with it: its GPU or its watchdog stood"
        " still"
    )
    absent = next((op for op in case.scene.stuck if rank in op.absent), None)
    if absent is not None:
        why += f", and it never entered {_where(absent)}"
    return Culprit(rank=rank, basis=Basis.OBSERVED, why=why)


def _mismatched(case: _Case) -> Judgement | None:
    """The minority of the earliest mismatch; a tie is undecided."""
    mismatch = next((m for m in case.mismatches if m.minority), None) or next(iter(case.mismatches), None)
    if mismatch is None:
        return None
    op = mismatch.op
    sides = [f"{name_ranks(ranks)} did {describe(signature)}" for signature, ranks in mismatch.signatures]
    note = f"in #{op.sequence} of {op.group.desc or op.group.name}, {'; '.join(sides)}"
    culprits = tuple(
        Culprit(rank=rank, basis=Basis.OBSERVED, why=f"it differs from the majority: {note}")
        for rank in sorted(mismatch.minority)
    )
    tie = "as many ranks did one thing as the other: the dumps cannot say which was meant"
    return Judgement(
        verdict=HangVerdict.HANG if culprits else HangVerdict.UNDECIDED,
        kind=mismatch.kind,
        culprits=culprits,
        stuck=_stuck(op, absent=op.absent),
        notes=[note, *([] if culprits else [tie]), *_beside(case, mismatch.minority)],
    )


def _cycle(case: _Case) -> Judgement | None:
    """Ranks that wait for each other, with nobody of them inside of anything that the evidence leaves open."""
    open_ranks = {rank for op in case.scene.stuck if op.unknown for rank in op.waiting}
    open_ranks |= case.scene.unsure.keys() | case.scene.doubtful
    cycles = [cycle for cycle in case.ends.cycles if not cycle[0] & open_ranks]
    if not cycles or case.transfers_hidden:
        return None
    notes = []
    for ranks, ops in cycles:
        steps = [f"{name_ranks(op.front & ranks)} inside {_where(op)} without {name_ranks(op.absent)}" for op in ops]
        notes.append(f"{name_ranks(ranks)} wait for each other: {'; '.join(steps)}")
    return Judgement(
        verdict=HangVerdict.HANG,
        kind=HangKind.ORDER_INVERSION,
        stuck=_stuck(cycles[0][1][0], absent=cycles[0][1][0].absent),
        notes=[*notes, *_beside(case, frozenset())],
    )


def _died_inside(case: _Case) -> Judgement | None:
    """A rank that had entered, by its agent's count, and whose process is gone: the others wait for its part."""
    gone = {rank for rank, report in case.reports.items() if died(report)}
    for op in case.scene.stuck:
        named = {rank for rank in gone & {*op.group.ranks} if not op.p2p and rank not in op.waiting}
        if named and op.joined:
            why = f"it had entered {_where(op)} by its agent's count, and died inside of it"
            return Judgement(
                verdict=HangVerdict.HANG,
                kind=HangKind.RANK_ABSENT,
                culprits=tuple(Culprit(rank=rank, basis=Basis.INFERRED, why=why) for rank in sorted(named)),
                stuck=_stuck(op, absent=frozenset(named)),
                notes=_beside(case, named),
            )
    return None


def _joined(case: _Case) -> Judgement | None:
    """Everybody inside, nobody done, and nothing left open."""
    scene = case.scene
    ops = [op for op in scene.stuck if op.joined and not _somebody_finished(scene, op)]
    certain = all(op.group.certain for op in ops) and not scene.unsure and not scene.doubtful and not scene.untrusted
    if not ops or not certain or any(op.unknown for op in scene.stuck) or case.missing or case.transfers_hidden:
        return None
    op = next((one for one in ops if not one.p2p), ops[0])
    return Judgement(
        verdict=HangVerdict.HANG,
        kind=HangKind.ALL_JOINED,
        stuck=_stuck(op, absent=op.absent),
        notes=[
            f"all ranks entered {_where(op)} and none finished it: the recorder cannot name a culprit;"
            " look at the GPUs, the network and the stacks"
        ],
    )


def _somebody_finished(scene: Scene, op: StuckOp) -> bool:
    if op.p2p:
        return False
    progress = scene.progress_of(op.group)
    return any(progress.finished(rank, op.sequence) for rank in op.group.ranks)


def _inferred(case: _Case) -> Judgement | None:
    """One rank of which nothing is known, for which all the others wait."""
    scene = case.scene
    open_ops = [op for op in scene.stuck if op.firm and op.unknown and not op.absent]
    unknown = frozenset(rank for op in open_ops for rank in op.unknown)
    explained = {rank for rank in unknown if rank in case.reports and suspicious(case.reports[rank])}
    named = frozenset(explained) or unknown
    alone = not (scene.views.keys() | case.missing) - case.busy - named and not scene.unsure
    if not named or not (explained or (len(named) == 1 and alone and not scene.untrusted & named)):
        return None
    if not explained and any(fell_out(case.reports[rank]) for rank in named if rank in case.reports):
        return None
    op = next(op for op in sorted(open_ops, key=lambda op: (op.p2p, op.sort_key)) if op.unknown & named)
    culprits = tuple(_inferred_culprit(case, rank, op) for rank in sorted(named))
    return Judgement(
        verdict=HangVerdict.HANG,
        kind=HangKind.P2P_UNMATCHED if op.p2p else HangKind.RANK_ABSENT,
        culprits=culprits,
        stuck=_stuck(op, absent=op.unknown & named),
        notes=_beside(case, named),
    )


def _inferred_culprit(case: _Case, rank: int, op: StuckOp) -> Culprit:
    view = case.scene.views.get(rank)
    left = "it left no dump" if view is None else "its dump is empty" if view.mute else "its dump does not say"
    reason = explain(case.reports.get(rank))
    why = f"{left}, and {name_ranks(op.waiting)} waited for it in {_where(op)}"
    return Culprit(rank=rank, basis=Basis.INFERRED, why=f"{why}; {reason}" if reason else why)


def _undecided(case: _Case) -> Judgement:
    """A hang, and nobody who can be named."""
    scene = case.scene
    op = next((op for op in scene.stuck if op.absent), None) or next(iter(scene.stuck), None)
    notes = []
    unknown = frozenset(rank for one in scene.stuck for rank in one.unknown)
    if unknown:
        notes.append(f"nothing tells whether {name_ranks(unknown)} had entered what the others wait in")
    if case.transfers_hidden:
        notes.append("gloo does not record sends and receives; a rank that seems idle may be inside of one")
    if scene.doubtful:
        notes.append(
            f"{name_ranks(scene.doubtful)} may be inside of an operation that the record does not show as unfinished"
            " (a batched send or receive reads completed with nccl2, and unfinished for good with nccl-legacy)"
        )
    for rank, where in sorted(scene.unsure.items()):
        notes.append(f"rank {rank} is inside {where}, a group whose members no dump names")
    return Judgement(
        verdict=HangVerdict.UNDECIDED,
        stuck=None if op is None else _stuck(op, absent=op.absent),
        notes=[*notes, *_beside(case, frozenset())],
    )


def _nothing_pending(case: _Case) -> Judgement:
    """No record shows an unfinished operation: no hang, if the records can be relied on."""
    ranks = case.expected or frozenset(case.scene.views)
    if ranks and all(rank in case.reports and left_in_order(case.reports[rank]) for rank in ranks):
        return Judgement(verdict=HangVerdict.NO_HANG, notes=["all ranks ran to their end"])
    by_report = _by_reports(case)
    if by_report is not None:
        return by_report
    notes = _doubts(case)
    return Judgement(verdict=HangVerdict.UNDECIDED if notes else HangVerdict.NO_HANG, notes=notes)


def _doubts(case: _Case) -> list[str]:
    """Why "nothing is pending" may not be the whole truth."""
    scene, notes = case.scene, []
    if not scene.views:
        notes.append("no dump could be read: nothing is known")
    if case.expected is None:
        notes.append("nobody says how many ranks there were: give the world size")
    if case.missing and scene.views:
        notes.append(f"{name_ranks(case.missing)} left no dump, and may have been waiting")
    if scene.outdated:
        notes.append(f"{name_ranks(scene.outdated)} never entered what others finished with them")
    silent = {rank for rank, view in scene.views.items() if view.mute or view.contradictory}
    if silent:
        notes.append(f"{name_ranks(silent)} left dumps that say nothing: an empty recorder, or another backend's")
    partial = {rank for rank, view in scene.views.items() if not view.full} - silent
    if partial:
        notes.append(f"of {name_ranks(partial)} there are active operations or a cut dump only")
    if scene.views and all(view.empty for view in scene.views.values()):
        notes.append("nothing was ever recorded, and some backends do not record everything")
    if case.transfers_hidden:
        notes.append("gloo does not record sends and receives, and there were some")
    hidden = scene.doubtful | {rank for op in scene.stuck for rank in op.waiting}
    if hidden:
        notes.append(
            f"{name_ranks(hidden)} issued sends or receives that may have been batched: those read completed with"
            " nccl2, and unfinished for good with nccl-legacy, so nobody can tell whether they hang"
        )
    stopped = {rank for rank, report in case.reports.items() if report.exit is None and suspicious(report)}
    if stopped:
        notes.append(f"the process of {name_ranks(stopped)} was stopped or gone")
    return notes


def _by_reports(case: _Case) -> Judgement | None:
    """The record shows nothing, but gloo does not record all. Ranks that fell out of torch.distributed were waiting;
    whoever did not, or whose process says why it was away, is the one awaited. None where the reports say nothing."""
    ranks = case.expected if case.expected is not None else frozenset(case.reports)
    fallen = {rank for rank in ranks if rank in case.reports and fell_out(case.reports[rank])}
    silent = case.transfers_hidden or all(view.empty for view in case.scene.views.values())
    suspects = {rank for rank in ranks if rank in case.reports and suspicious(case.reports[rank])}
    if not fallen and not (silent and suspects and all(rank in case.reports for rank in ranks)):
        return None
    note = f"{name_ranks(fallen)} failed inside of operations that the recorder does not show as unfinished"
    if not fallen:
        note = f"the recorder shows nothing unfinished, yet {name_ranks(ranks - suspects)} had not ended"
    entered = all(case.reports[rank].exit.last_sequence for rank in fallen)  # type: ignore[union-attr]
    standing = {rank for rank in ranks - fallen if rank not in case.reports or not ended_by_signal(case.reports[rank])}
    named = suspects or standing
    if len(named) != 1 or not entered:
        return Judgement(verdict=HangVerdict.UNDECIDED, notes=[note])
    (rank,) = named
    reason = explain(case.reports.get(rank))
    why = f"it was in no operation while {name_ranks(ranks - named)} were in theirs"
    transfer = case.transfers_hidden or any(failed_in_transfer(case.reports[other]) for other in fallen)
    return Judgement(
        verdict=HangVerdict.HANG,
        kind=HangKind.P2P_UNMATCHED if transfer else HangKind.RANK_ABSENT,
        culprits=(Culprit(rank=rank, basis=Basis.INFERRED, why=f"{why}; {reason}" if reason else why),),
        notes=[note],
    )


def _beside(case: _Case, named: Iterable[int]) -> list[str]:
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


def _best_op(stuck: Iterable[StuckOp], named: frozenset[int]) -> StuckOp | None:
    """The operation that shows most of the named ranks absent, with most ranks waiting; the oldest of equals."""
    fitting = [op for op in stuck if op.absent & named] or [op for op in stuck if op.firm]
    return min(fitting, key=lambda op: (-len(op.absent & named), -len(op.waiting), op.sort_key), default=None)


def _where(op: StuckOp) -> str:
    return name_operation(op.op, op.sequence, op.group.desc or op.group.name)


def _stuck(op: StuckOp, *, absent: frozenset[int]) -> StuckOperation:
    group = StuckGroup(name=op.group.name, desc=op.group.desc, ranks=op.group.ranks)
    return StuckOperation(
        group=group,
        op=op.op,
        sequence=op.sequence,
        p2p=op.p2p,
        waiting=tuple(sorted(op.waiting)),
        absent=tuple(sorted(absent)),
    )
