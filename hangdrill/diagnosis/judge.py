"""The judgement over a scene: which hang it is and who, if anybody, is to be named.

In this order, because each step is surer than the next: ranks that the others wait for and that wait for nobody; the
minority of a mismatch; a cycle of waits; a rank that died inside; everybody inside and nobody done; a rank of which
nothing is known and for which all the others wait. Whatever is missing turns certainty into "undecided", never into
another name.
"""

from collections.abc import Mapping
from dataclasses import replace

from hangdrill.diagnosis.case import Case, Judgement, beside, build_case, may_hide, stuck_operation, where
from hangdrill.diagnosis.mismatch import find_earlier_mismatch
from hangdrill.diagnosis.quiet import nothing_pending
from hangdrill.diagnosis.reports import died, explain, fell_out, suspicious
from hangdrill.diagnosis.scene import Scene, StuckOp
from hangdrill.diagnosis.signatures import describe
from hangdrill.diagnosis.words import name_ranks
from hangdrill.model.diagnosis import Basis, Culprit, HangKind, HangVerdict
from hangdrill.model.run import RankPull

__all__ = ["judge"]


def judge(
    scene: Scene,
    reports: Mapping[int, RankPull],
    expected: frozenset[int] | None,
    written: frozenset[int] = frozenset(),
) -> Judgement:
    """The judgement. expected: all ranks of the job, None when nobody said who they are. written: ranks that have left
    a file which nobody can read, or which is known to have been there."""
    case = build_case(scene, reports, expected, written)
    if not scene.unsure and not any(op.firm for op in scene.stuck):
        return nothing_pending(case)
    for step in (_observed, _mismatched, _cycle, _died_inside, _joined, _inferred):
        judgement = step(case)
        if judgement is not None:
            return judgement
    return _undecided(case)


def _observed(case: Case) -> Judgement | None:
    """Ranks that are awaited and wait for nobody, and ranks whose record stood still."""
    scene = case.scene
    named = case.ends.ranks - case.busy - scene.doubtful - scene.untrusted - scene.frozen.keys()
    named = frozenset(rank for rank in named if not may_hide(case, rank))
    frozen = frozenset(scene.frozen)
    if not named and not frozen:
        return None
    decided = [mismatch for mismatch in case.mismatches if mismatch.minority]
    op = _best_op(scene, named or frozen)
    if op is None or (decided and (not named or decided[0].op.sort_key < op.sort_key)):
        return None
    culprits = [_observed_culprit(case, rank) for rank in named]
    culprits += [_frozen_culprit(case, rank) for rank in frozen]
    return Judgement(
        verdict=HangVerdict.HANG,
        kind=HangKind.P2P_UNMATCHED if op.p2p else HangKind.RANK_ABSENT,
        culprits=tuple(sorted(culprits, key=lambda culprit: culprit.rank)),
        stuck=stuck_operation(op, absent=op.absent),
        notes=beside(case, named | frozen),
    )


def _observed_culprit(case: Case, rank: int) -> Culprit:
    missed = [op for op in case.scene.stuck if rank in op.absent]
    op = min(missed, key=lambda op: (op.record_id, op.sort_key))
    place = where(op)
    if op.p2p:
        why = f"it never posted the other side of {place} of {name_ranks(op.waiting)}"
    else:
        last = min(case.scene.progress_of(op.group).last(rank), op.sequence - 1)
        group = op.group.desc or op.group.name
        why = f"it never entered {place}: its last operation there is #{last}" if last else f"it never entered {place}"
        why += "" if last else f" nor any other operation of {group}"
        if rank in case.scene.late:
            why = f"it entered {place} {case.scene.late[rank]:.1f} s after the first, when the timeout was over"
    reason = explain(case.reports.get(rank))
    return Culprit(rank=rank, basis=Basis.OBSERVED, why=f"{why}; {reason}" if reason else why)


def _frozen_culprit(case: Case, rank: int) -> Culprit:
    count = case.scene.frozen[rank]
    why = (
        f"its record calls {count} operations unfinished that its peers finished with it: its GPU or its watchdog stood"
        " still"
    )
    absent = next((op for op in case.scene.stuck if rank in op.absent), None)
    if absent is not None:
        why += f", and it never entered {where(absent)}"
    return Culprit(rank=rank, basis=Basis.OBSERVED, why=why)


def _mismatched(case: Case) -> Judgement | None:
    """The minority of the earliest mismatch; a tie is undecided."""
    mismatch = next((m for m in case.mismatches if m.minority), None) or next(iter(case.mismatches), None)
    if mismatch is None and all(op.joined for op in case.scene.stuck):
        mismatch = next(filter(None, (find_earlier_mismatch(case.scene, op) for op in case.scene.stuck)), None)
    if mismatch is None:
        return None
    op = replace(mismatch.op, op=mismatch.meant)
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
        stuck=stuck_operation(op, absent=op.absent),
        notes=[note, *([] if culprits else [tie]), *beside(case, mismatch.minority)],
    )


def _cycle(case: Case) -> Judgement | None:
    """Ranks that wait for each other, with nobody of them inside of anything that the evidence leaves open."""
    open_ranks = {rank for op in case.scene.stuck if op.unknown for rank in op.waiting}
    open_ranks |= case.scene.unsure.keys() | case.scene.doubtful
    cycles = [cycle for cycle in case.ends.cycles if not cycle[0] & open_ranks]
    if not cycles or case.transfers_hidden:
        return None
    notes = []
    for ranks, ops in cycles:
        steps = [f"{name_ranks(op.front & ranks)} inside {where(op)} without {name_ranks(op.absent)}" for op in ops]
        notes.append(f"{name_ranks(ranks)} wait for each other: {'; '.join(steps)}")
    return Judgement(
        verdict=HangVerdict.HANG,
        kind=HangKind.ORDER_INVERSION,
        stuck=stuck_operation(cycles[0][1][0], absent=cycles[0][1][0].absent),
        notes=[*notes, *beside(case, frozenset())],
    )


def _died_inside(case: Case) -> Judgement | None:
    """A rank that had entered, by its agent's count, and whose process is gone: the others wait for its part."""
    gone = {rank for rank, report in case.reports.items() if died(report)}
    for op in case.scene.stuck:
        named = {rank for rank in gone & {*op.group.ranks} if not op.p2p and rank not in op.waiting}
        if named and op.joined:
            why = f"it had entered {where(op)} by its agent's count, and died inside of it"
            return Judgement(
                verdict=HangVerdict.HANG,
                kind=HangKind.RANK_ABSENT,
                culprits=tuple(Culprit(rank=rank, basis=Basis.INFERRED, why=why) for rank in sorted(named)),
                stuck=stuck_operation(op, absent=frozenset(named)),
                notes=beside(case, named),
            )
    return None


def _joined(case: Case) -> Judgement | None:
    """Everybody inside, nobody done, and nothing left open."""
    scene = case.scene
    # A rank alone in a group waits for nobody there: it is held up by something that is not shown.
    ops = [op for op in scene.stuck if op.joined and len(op.group.ranks) > 1 and not _somebody_finished(scene, op)]
    certain = all(op.group.certain for op in ops) and not scene.unsure and not scene.doubtful and not scene.untrusted
    open_ended = any(op.unknown or op.absent - case.busy for op in scene.stuck)
    # Batches that read completed at once carry pg_status past what a list of active operations may have dropped.
    open_ended = open_ended or (case.transfers_of_nccl2 and not all(view.full for view in scene.views.values()))
    if not ops or not certain or open_ended or case.missing or case.transfers_hidden:
        return None
    op = next((one for one in ops if not one.p2p), ops[0])
    return Judgement(
        verdict=HangVerdict.HANG,
        kind=HangKind.ALL_JOINED,
        stuck=stuck_operation(op, absent=op.absent),
        notes=[
            f"all ranks entered {where(op)} and none finished it: the recorder cannot name a culprit;"
            " look at the GPUs, the network and the stacks"
        ],
    )


def _somebody_finished(scene: Scene, op: StuckOp) -> bool:
    if op.p2p:
        return False
    progress = scene.progress_of(op.group)
    return any(progress.finished(rank, op.sequence) for rank in op.group.ranks)


def _inferred(case: Case) -> Judgement | None:
    """One rank of which nothing is known, for which all the others wait."""
    scene = case.scene
    open_ops = [op for op in scene.stuck if op.firm and op.unknown and not op.absent]
    unknown = frozenset(rank for op in open_ops for rank in op.unknown)
    views = scene.views
    explained = {rank for rank in unknown if rank in case.reports and suspicious(case.reports[rank])}
    # A rank whose dump is lost, cut or lists too little has written one: mostly because it waited itself.
    heard = {rank for rank in unknown if rank in case.written or (rank in views and not views[rank].mute)}
    heard |= case.counted_inside
    named = frozenset(explained) or unknown
    alone = not (views.keys() | case.missing) - case.busy - named and not scene.unsure
    if not named or not (explained or (len(named) == 1 and alone and not heard & named)):
        return None
    if not explained and any(fell_out(case.reports[rank]) for rank in named if rank in case.reports):
        return None
    op = next(op for op in sorted(open_ops, key=lambda op: (op.p2p, op.sort_key)) if op.unknown & named)
    culprits = tuple(_inferred_culprit(case, rank, op) for rank in sorted(named))
    return Judgement(
        verdict=HangVerdict.HANG,
        kind=HangKind.P2P_UNMATCHED if op.p2p else HangKind.RANK_ABSENT,
        culprits=culprits,
        stuck=stuck_operation(op, absent=op.unknown & named),
        notes=beside(case, named),
    )


def _inferred_culprit(case: Case, rank: int, op: StuckOp) -> Culprit:
    view = case.scene.views.get(rank)
    left = "it left no dump" if view is None else "its dump is empty" if view.mute else "its dump does not say"
    reason = explain(case.reports.get(rank))
    why = f"{left}, and {name_ranks(op.waiting)} waited for it in {where(op)}"
    return Culprit(rank=rank, basis=Basis.INFERRED, why=f"{why}; {reason}" if reason else why)


def _undecided(case: Case) -> Judgement:
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
    for rank, place in sorted(scene.unsure.items()):
        notes.append(f"rank {rank} is inside {place}, a group whose members no dump names")
    return Judgement(
        verdict=HangVerdict.UNDECIDED,
        stuck=None if op is None else stuck_operation(op, absent=op.absent),
        notes=[*notes, *beside(case, frozenset())],
    )


def _best_op(scene: Scene, named: frozenset[int]) -> StuckOp | None:
    """The operation that shows most of the named ranks absent; of several the one they should have entered first."""
    fitting = [op for op in scene.stuck if op.absent & named]
    if not fitting:
        return next((op for op in scene.stuck if op.firm), None)
    most = max(len(op.absent & named) for op in fitting)
    fitting = [op for op in fitting if len(op.absent & named) == most]
    return min(fitting, key=lambda op: (op.record_id, op.sort_key))
