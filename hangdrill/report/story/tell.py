"""The one way into this room: a diagnosis and the dumps it came from -> the story."""

from collections.abc import Iterable

from hangdrill.checks.words import ranks_text
from hangdrill.diagnosis import sentence
from hangdrill.model.diagnosis import Diagnosis
from hangdrill.model.dump import RankDump
from hangdrill.model.run import RankPull
from hangdrill.report.sentence import operation_text
from hangdrill.report.story.advice import next_steps
from hangdrill.report.story.gaps import gaps_of
from hangdrill.report.story.index import Index
from hangdrill.report.story.picture import pictures_of
from hangdrill.report.story.ranks import Roles
from hangdrill.report.story.slices import BEFORE, slice_ranks
from hangdrill.report.story.stuck import culprit_rows, stuck_rows
from hangdrill.report.story.text import shown
from hangdrill.report.story.timeline import timeline_of
from hangdrill.report.story.values import Story

__all__ = ["BRIEF", "tell_story"]

BRIEF = 10
"""`before` where there is no picture, as in the terminal."""

MOST_NOTES = 50
LONG = 2_000


def tell_story(
    diagnosis: Diagnosis,
    dumps: Iterable[RankDump] = (),
    *,
    reports: Iterable[RankPull] = (),
    before: int = BEFORE,
) -> Story:
    """What there is to tell. dumps: each looked at once, in any order, and let go; without them the story has what
    the diagnosis alone says. reports: what the collector saw of the processes. before: so many sequences before the
    stall are kept; fewer are quicker."""
    index, roles = Index(diagnosis.stuck), Roles(diagnosis)
    slices = slice_ranks(dumps, roles, diagnosis.ranks.stale, index, before=before)
    rows, rows_hidden = stuck_rows(diagnosis, roles, slices)
    pictures, groups_hidden = pictures_of(diagnosis, roles, slices, index)
    stuck, roll = diagnosis.stuck, diagnosis.ranks
    return Story(
        sentence=shown(sentence(diagnosis), LONG),
        verdict=diagnosis.verdict.value,
        kind=diagnosis.kind.value if diagnosis.kind is not None else "",
        operation=shown(operation_text(stuck)) if stuck is not None else "",
        group_ranks=ranks_text(stuck.group.ranks) if stuck is not None else "",
        dumps=f"{len(roll.present)}{f' of {roll.expected}' if roll.expected is not None else ''}",
        stuck=rows,
        stuck_hidden=rows_hidden,
        culprits=culprit_rows(diagnosis),
        timeline=timeline_of(roles, slices),
        pictures=pictures,
        groups_hidden=groups_hidden,
        gaps=gaps_of(diagnosis, roles, slices),
        notes=tuple(shown(note, LONG) for note in diagnosis.notes[:MOST_NOTES]),
        next_steps=next_steps(diagnosis, roles, slices, reports),
    )
