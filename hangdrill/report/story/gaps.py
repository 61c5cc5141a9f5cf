"""What is missing, and what each missing piece would have told."""

from collections.abc import Iterator, Mapping

from hangdrill.checks.words import count_text
from hangdrill.model.diagnosis import Diagnosis, RankRoll, UnreadableDump
from hangdrill.report.sentence import operation_text
from hangdrill.report.story.ranks import Roles
from hangdrill.report.story.slices import RankSlice
from hangdrill.report.story.text import shown
from hangdrill.report.story.values import Gap

__all__ = ["gaps_of"]

MOST_FILES = 50


def gaps_of(diagnosis: Diagnosis, roles: Roles, slices: Mapping[int, RankSlice]) -> tuple[Gap, ...]:
    """The gaps in the evidence, those first that would have told most."""
    return (*_of_roll(diagnosis.ranks, roles), *_of_content(roles, slices))


def _of_roll(roll: RankRoll, roles: Roles) -> Iterator[Gap]:
    what = shown(operation_text(roles.stuck)) if roles.stuck is not None else ""
    awaited = tuple(rank for rank in roll.missing if rank in roles.absent)
    members = tuple(rank for rank in roll.missing if rank in roles.members and rank not in roles.absent)
    others = tuple(rank for rank in roll.missing if rank not in roles.absent and rank not in roles.members)
    if awaited:
        yield Gap(
            word="missing",
            ranks=awaited,
            told=f"whether {_they(awaited)} entered {what}, or what {_they(awaited)} did instead of it",
        )
    if members:
        yield Gap(word="missing", ranks=members, told=f"whether {_they(members)} entered {what} too, or never came")
    if others:
        told = f"where {_they(others)} stood: an operation of another group may be what the rest waits for"
        yield Gap(word="missing", ranks=others, told=told)
    for bad in roll.unreadable[:MOST_FILES]:
        yield _of_file(bad)
    if len(roll.unreadable) > MOST_FILES:
        ranks = tuple(bad.rank for bad in roll.unreadable[MOST_FILES:] if bad.rank is not None)
        more = f"{len(roll.unreadable) - MOST_FILES} more files"
        yield Gap(word="unreadable", ranks=ranks, detail=more, told="the history of these ranks")
    if roll.stale:
        told = "the rank's history in this job; its file is of an earlier one and was not looked at"
        yield Gap(word="stale", ranks=roll.stale, told=told)
    if roll.duplicate:
        told = "which of the files is of this job; they contradict each other, and neither is believed"
        yield Gap(word="duplicate", ranks=roll.duplicate, told=told)
    if roll.empty:
        told = "the history, if another backend ran than the one that was asked for; else that nothing was ever entered"
        yield Gap(word="empty", ranks=roll.empty, told=told)


def _they(ranks: tuple[int, ...]) -> str:
    return "it" if len(ranks) == 1 else "they"


def _of_file(bad: UnreadableDump) -> Gap:
    saved = bad.salvaged_entries
    told = (
        f"what came after the {count_text(saved, 'operation')} that could be salvaged: the last ones say where it stood"
        if saved
        else "the whole history of this rank"
    )
    return Gap(
        word="unreadable",
        ranks=() if bad.rank is None else (bad.rank,),
        detail=f"{shown(bad.file)}: {shown(bad.error)}",
        told=told,
    )


def _of_content(roles: Roles, slices: Mapping[int, RankSlice]) -> Iterator[Gap]:
    """What the dumps that arrived lack."""
    stuck = {rank: one.pending for rank, one in slices.items() if rank in roles.waiting}
    stuck.update({rank: one.last_there for rank, one in slices.items() if rank in roles.absent})
    bare = tuple(sorted(rank for rank, operation in stuck.items() if operation is not None and not operation.frames))
    if bare:
        told = (
            "the line that each of these ranks waits at, or called its last operation there from (gloo, and dumps "
            "pulled without the GIL, have no stacks)"
        )
        yield Gap(word="no stacks", ranks=bare, told=told)
    listed = tuple(rank for rank, one in slices.items() if one.only_active)
    if listed:
        told = "what these ranks finished before; their dumps list active operations only"
        yield Gap(word="active only", ranks=listed, told=told)
