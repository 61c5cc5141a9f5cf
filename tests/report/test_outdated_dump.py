"""The dump of a stopped rank is older than what its peers finished with it: the story proves nothing by it, and says
who stopped the rank is to be asked."""

import re
from pathlib import Path

import msgspec
import pytest
from html_cases import dump, stalled, told
from rich.console import Console

from hangdrill.diagnosis import diagnose
from hangdrill.incident import diagnose_evidence, read_incident
from hangdrill.model.diagnosis import Basis
from hangdrill.model.dump import Group, OperationState
from hangdrill.model.run import RankPull, RankState
from hangdrill.report.diagnosed import print_diagnosis
from hangdrill.report.html import page_html
from hangdrill.report.story import tell_story
from hangdrill.report.story.index import Index
from hangdrill.report.story.ranks import Roles
from hangdrill.report.story.slices import outdated, slice_ranks

DATA = Path(__file__).parents[1] / "data"
STOPPED = (RankPull(rank=1, pid=21811, state=RankState.STOPPED),)
PAIR = Group(name="1", desc="pair", ranks=(0, 1))


def too_old():
    """Ranks 0 and 2 finished #54 and wait in #55; what is left of rank 1 ends with #53."""
    return [dump(0, 55, 3, pending=True), dump(1, 53, 3), dump(2, 55, 3, pending=True)]


def story_of(dumps, reports=()):
    return tell_story(diagnose(dumps, reports=reports), dumps, reports=reports)


def in_a_pair_too(dumps):
    """Rank 0 waits in #1 of a group with rank 1 as well."""
    dumps = [msgspec.structs.replace(one, groups=(*one.groups, PAIR)) for one in dumps]
    last = dumps[0].operations[-1]
    other = msgspec.structs.replace(
        last, record_id=99, group_name="1", group_desc="pair", sequence=1, state=OperationState.SCHEDULED,
        retired=False, created_ns=last.created_ns + 10**9,
    )  # fmt: skip
    dumps[0] = msgspec.structs.replace(dumps[0], operations=(*dumps[0].operations, other))
    return dumps


def cells(picture, label):
    (row,) = [row for row in picture.rows if row.label == label]
    return "".join(letter * int(count) for count, letter in re.findall(r"(\d+)([a-z])", row.cells))


def test_what_peers_finished_is_unknown_of_it_and_the_stuck_operation_inferred():
    (picture,) = story_of(too_old(), STOPPED).pictures
    assert cells(picture, "rank 1") == "c" * 53 + "ux"


def test_behind_an_inferred_absence_nothing_is_proven():
    dumps = too_old()
    dumps[0] = msgspec.structs.replace(dump(0, 56, 3, pending=True), operations=(
        *dumps[0].operations, msgspec.structs.replace(dump(0, 56, 3, pending=True).operations[-1]),
    ))  # fmt: skip
    (picture,) = story_of(dumps, STOPPED).pictures
    assert cells(picture, "rank 1") == "c" * 53 + "uxu"


def test_without_a_word_of_the_process_it_is_unknown_throughout():
    story = story_of(too_old())
    assert story.verdict == "undecided"
    assert cells(story.pictures[0], "rank 1") == "c" * 53 + "uu"


def test_it_proves_no_absence_in_another_group_either():
    pair = next(one for one in story_of(in_a_pair_too(too_old()), STOPPED).pictures if one.title == "pair")
    assert cells(pair, "rank 1") == "u"
    pair = next(one for one in story_of(in_a_pair_too(stalled(3, [1])), STOPPED).pictures if one.title == "pair")
    assert cells(pair, "rank 1") == "a"


def test_two_dumps_that_contradict_each_other_prove_no_absence():
    one = dump(1, 54, 3)
    shifted = tuple(msgspec.structs.replace(each, created_ns=each.created_ns + 1) for each in one.operations)
    dumps = [*stalled(3, [1]), msgspec.structs.replace(one, path="other/fr_1", operations=shifted)]
    assert [cells(each, "rank 1") for each in story_of(in_a_pair_too(dumps), STOPPED).pictures] == ["c" * 54 + "x", "u"]


def test_a_dump_that_is_not_older_still_proves_the_absence():
    """The control, of a stopped rank too: nobody finished what its record lacks."""
    found = diagnose(stalled(3, [1]), reports=STOPPED)
    assert [one.basis for one in found.culprits] == [Basis.OBSERVED]
    (picture,) = tell_story(found, stalled(3, [1]), reports=STOPPED).pictures
    assert cells(picture, "rank 1") == "c" * 54 + "a"


def test_the_last_operation_of_gloo_that_was_called_over_outdates_nobody():
    """gloo calls over what has failed: here it fails on rank 0 once rank 1 has gone."""
    dumps = stalled(3, [1])
    gloo = [
        msgspec.structs.replace(
            one,
            operations=tuple(
                msgspec.structs.replace(operation, backend="gloo", retired=True) for operation in one.operations
            ),
        )
        if one.rank == 0
        else one
        for one in dumps
    ]
    assert [cells(one, "rank 1") for one in story_of(in_a_pair_too(gloo)).pictures] == ["c" * 54 + "a", "a"]


@pytest.mark.parametrize("runs", ["gpu_runs", "gloo_runs"])
def test_of_every_real_run_the_diagnosis_and_the_story_agree_on_whose_dump_is_too_old(runs):
    """In one of them nccl-legacy calls completed what waits behind an operation that is not over."""
    places = [place for place in (DATA / runs).iterdir() if place.is_dir()]
    assert len(places) > 20
    for place in places:
        evidence = read_incident([place])
        found = diagnose_evidence(evidence)
        roles, index = Roles(found), Index(found.stuck)
        ranks = outdated(slice_ranks(evidence.dumps, roles, found.ranks.stale, index), index)
        assert bool(ranks) == any("older than what others" in note for note in found.notes), place.name


def test_the_table_says_inferred_and_calls_nothing_its_last():
    story = story_of(too_old(), STOPPED)
    (row,) = [row for row in story.stuck if row.is_culprit]
    assert row.inferred
    text = terminal_text(too_old(), STOPPED)
    assert "absent, inferred" in text
    assert re.search(r"absent +rank 1 \(inferred\)", text)
    assert "last in its dump: all_reduce #53 of default_pg" in text
    assert "after all_reduce" not in text
    page = page_html(story)
    assert "absent, inferred" in page.partition('id="picture"')[0]
    assert "last finished" not in page.partition("<tbody>")[2].partition("</tbody>")[0]
    assert not [step for step in story.next_steps if step.startswith("what rank 1 does after")]


def test_the_table_of_an_observed_absence_stays():
    text = terminal_text(stalled(3, [1]), STOPPED)
    assert "after all_reduce #54 of default_pg" in text
    assert "inferred" not in text
    assert "last finished" in page_html(story_of(stalled(3, [1]), STOPPED))


def test_of_a_stopped_rank_the_next_step_is_who_stopped_it():
    for dumps in (too_old(), stalled(3, [1]), stalled(3, [1], lost=[1])):
        steps = story_of(dumps, STOPPED).next_steps
        assert steps[0] == (
            "who stopped rank 1 (state T): a SIGSTOP, or a debugger? on its host, `kill -CONT 21811` resumes it"
        )
        assert not [step for step in steps if "lived" in step]


def test_of_a_rank_that_runs_or_is_unknown_it_is_not():
    running = (RankPull(rank=1, pid=21811, state=RankState.RUNNING),)
    for reports in ((), running, (msgspec.structs.replace(STOPPED[0], rank=0),)):
        assert not [step for step in story_of(stalled(3, [1], lost=[1]), reports).next_steps if "CONT" in step]
    found, dumps = told(stalled(3, [1], lost=[1]))
    assert [step for step in tell_story(found, dumps).next_steps if "lived" in step]


def test_a_stopped_rank_without_a_pid_is_resumed_by_its_own():
    reports = (msgspec.structs.replace(STOPPED[0], pid=None),)
    assert story_of(too_old(), reports).next_steps[0].endswith("`kill -CONT PID` resumes it")


def terminal_text(dumps, reports):
    console = Console(width=200, highlight=False, markup=False)
    with console.capture() as captured:
        found = diagnose(dumps, reports=reports)
        print_diagnosis(console, found, story=tell_story(found, dumps, reports=reports))
    return captured.get()
