"""The judgement where no record shows an unfinished operation: health, if the records can be relied on."""

from hangdrill.diagnosis.case import Case, Judgement
from hangdrill.diagnosis.reports import (
    ended_otherwise,
    explain,
    failed_in_transfer,
    fell_out,
    is_broken,
    left_in_order,
    raised,
    suspicious,
)
from hangdrill.diagnosis.words import name_ranks
from hangdrill.model.diagnosis import Basis, Culprit, HangKind, HangVerdict
from hangdrill.model.run import RankExit

__all__ = ["nothing_pending"]


def nothing_pending(case: Case) -> Judgement:
    """No record shows an unfinished operation: no hang, if the records can be relied on."""
    ranks = case.expected or frozenset(case.scene.views)
    if ranks and all(rank in case.reports and left_in_order(case.reports[rank]) for rank in ranks):
        return Judgement(verdict=HangVerdict.NO_HANG, notes=["all ranks ran to their end"])
    by_report = _by_reports(case)
    if by_report is not None:
        return by_report
    notes = _doubts(case)
    return Judgement(verdict=HangVerdict.UNDECIDED if notes else HangVerdict.NO_HANG, notes=notes)


def _doubts(case: Case) -> list[str]:  # noqa: PLR0912 - a doubt a branch
    """Why "nothing is pending" may not be the whole truth."""
    scene, notes = case.scene, []
    if not scene.views:
        notes.append("no dump could be read: nothing is known")
    if case.expected is None:
        notes.append("nobody says how many ranks there were: give the world size")
    if case.missing and scene.views:
        notes.append(f"{name_ranks(case.missing)} left no dump, and may have been waiting")
    if scene.frozen:
        notes.append(f"the record of {name_ranks(scene.frozen)} stood still while the peers went on")
    if scene.lagging:
        notes.append(f"of {name_ranks(scene.lagging)}, a send or receive is unfinished whose other side is finished")
    if scene.outdated:
        notes.append(f"{name_ranks(scene.outdated)} never entered what others finished with them")
    torn = {rank for rank, view in scene.views.items() if view.contradictory}
    if torn:
        notes.append(f"the files of {name_ranks(torn)} are of several jobs or attempts: name the directory of one")
    silent = {rank for rank, view in scene.views.items() if view.mute} - torn
    early = {rank: end for rank in sorted(silent) if (end := _end_by_error(case, rank)) is not None}
    for rank, end in list(early.items())[:1]:  # the others mostly end of that, or of the same
        notes.insert(0, f"rank {rank} raised {end.complaint} before anything was recorded")
    silent -= early.keys()
    if silent:
        notes.append(f"{name_ranks(silent)} left dumps that say nothing: an empty recorder, or another backend's")
    partial = {rank for rank, view in scene.views.items() if not view.full} - silent - torn
    if partial:
        notes.append(f"of {name_ranks(partial)} there are active operations or a cut dump only")
    if scene.views and all(view.empty for view in scene.views.values()):
        notes.append("nothing was ever recorded, and some backends do not record everything")
    if case.transfers_hidden:
        notes.append("gloo does not record sends and receives, and there were some")
    hidden = scene.doubtful | {rank for op in scene.stuck for rank in op.waiting}
    hidden.update(rank for rank, view in scene.views.items() if view.history.any_over_at_once())
    if hidden:
        notes.append(
            f"{name_ranks(hidden)} issued sends or receives that may have been batched: those read completed with"
            " nccl2, and unfinished for good with nccl-legacy, so nobody can tell whether they hang"
        )
    stopped = {rank for rank, report in case.reports.items() if report.exit is None and suspicious(report)}
    if stopped:
        notes.append(f"the process of {name_ranks(stopped)} was stopped or gone")
    return notes


def _end_by_error(case: Case, rank: int) -> RankExit | None:
    report = case.reports.get(rank)
    return report.exit if report is not None and raised(report) else None


def _by_reports(case: Case) -> Judgement | None:
    """The record shows nothing, but gloo does not record all. Ranks that fell out of torch.distributed were waiting;
    whoever did not, or whose process says why it was away, is the one awaited. None where the reports say nothing."""
    ranks = case.expected if case.expected is not None else frozenset(case.reports)
    fallen = {rank for rank in ranks if rank in case.reports and fell_out(case.reports[rank])}
    broken = {rank for rank in ranks if rank in case.reports and is_broken(case.reports[rank])}
    if not fallen:
        # That a process stands still or is gone proves nobody's wait; but one that raised has left the others alone.
        broken = {rank for rank in broken if raised(case.reports[rank])} if case.transfers_hidden else set()
        if not broken:
            return None
    note = f"{name_ranks(fallen)} failed inside of operations that the recorder does not show as unfinished"
    if not fallen:
        note = f"the recorder shows nothing unfinished, yet {name_ranks(ranks - broken)} had not ended"
    # mypy cannot know that who fell has announced an end.
    entered = all(case.reports[rank].exit.last_sequence for rank in fallen)  # type: ignore[union-attr] # see above
    standing = ranks - fallen
    named = broken or standing
    # Whoever was ended from outside may have been in anything, and whoever ran to the end may not have been needed.
    ended = any(rank in case.reports and ended_otherwise(case.reports[rank]) for rank in named)
    if len(named) != 1 or ended or not entered:
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
