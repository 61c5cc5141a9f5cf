"""The story says who stands where, what the cells of the picture are, and what is missing; and it stays small."""

import re
from pathlib import Path

import msgspec
import pytest
from html_cases import dump, stalled, told

from hangdrill.diagnosis import diagnose
from hangdrill.model.diagnosis import HangVerdict, UnreadableDump
from hangdrill.model.dump import Frame, Group
from hangdrill.recorder import read_evidence
from hangdrill.report.story import BRIEF, seconds_text, shown, tell_story
from hangdrill.report.story.places import place_of
from hangdrill.report.story.values import Cell, Role

DATA = Path(__file__).parents[1] / "data" / "dumps"


def cells(row):
    return "".join(letter * int(count) for count, letter in re.findall(r"(\d+)([a-z])", row.cells))


@pytest.mark.parametrize("culprit", [0, 3, 7])
def test_equal_ranks_share_a_row_and_the_culprit_has_its_own(culprit):
    picture = tell_story(*told(stalled(8, [culprit]))).pictures[0]
    alone = next(row for row in picture.rows if row.is_culprit)
    (rest,) = [row for row in picture.rows if not row.is_culprit]
    assert (alone.runs, rest.count) == (((culprit, culprit),), 7)
    assert picture.stuck == picture.first + picture.columns - 1 == 55
    assert cells(alone) == "c" * 54 + "a"
    assert cells(rest) == "c" * 54 + "p"


def test_a_rank_without_a_dump_is_absent_by_inference_only():
    (row, _) = tell_story(*told(stalled(3, [2], lost=[2]))).pictures[0].rows
    assert row.label == "rank 2"
    assert cells(row) == "n" * 54 + "x"


def test_what_the_ring_buffer_forgot_is_unknown_and_not_absent():
    dumps = [dump(0, 55, 3, pending=True), dump(1, 55, 3, pending=True, kept=10), dump(2, 54, 3)]
    rows = {row.label: cells(row) for row in tell_story(*told(dumps)).pictures[0].rows}
    assert rows["rank 1"] == "u" * 45 + "c" * 9 + "p"
    assert "u" not in rows["rank 0"]


def test_active_operations_only_say_nothing_of_what_came_before():
    whole = stalled(3, [2])
    active = [
        msgspec.structs.replace(one, only_active=True, operations=one.operations[-1:]) if one.rank < 2 else one
        for one in whole
    ]
    rows = tell_story(*told(active)).pictures[0].rows
    assert {row.label: cells(row)[-4:] for row in rows} == {"ranks 0-1 (2)": "uuup", "rank 2": "ccca"}
    gaps = {gap.word: gap.ranks for gap in tell_story(*told(active)).gaps}
    assert gaps["active only"] == (0, 1)


def test_the_other_group_that_awaits_the_culprit_comes_second():
    dumps = stalled(4, [1])
    pair = Group(name="1", desc="pair", ranks=(0, 1))
    other = Group(name="2", desc="others", ranks=(2, 3))

    def beside(one):
        group = pair if one.rank < 2 else other
        last = one.operations[-1]
        issued = msgspec.structs.replace(
            last,
            record_id=99,
            group_name=group.name,
            group_desc=group.desc,
            sequence=1,
            created_ns=last.created_ns + 10**9,
        )
        more = () if one.rank == 1 else (issued,)
        return msgspec.structs.replace(one, groups=(*one.groups, group), operations=(*one.operations, *more))

    pictures = tell_story(*told([beside(one) for one in dumps])).pictures
    assert [(one.title, one.awaits_culprit) for one in pictures] == [
        ("default_pg", True), ("pair", True), ("others", False),
    ]  # fmt: skip
    assert [row.cells for row in pictures[1].rows] == ["1a", "1p"]


def test_another_operation_under_the_same_number_is_a_mismatch():
    dumps = [dump(rank, 55, 4, pending=True, odd=55 if rank == 2 else None) for rank in range(4)]
    row = next(row for row in tell_story(*told(dumps)).pictures[0].rows if row.label == "rank 2")
    assert cells(row)[-1] == Cell.MISMATCH.value
    assert row.odd == ((54, "broadcast"),)
    assert all("m" not in row.cells for row in tell_story(*told(stalled(4, [2]))).pictures[0].rows)


def test_the_table_says_the_line_each_rank_waits_at():
    rows = tell_story(*told(stalled(4, [1]))).stuck
    assert [(row.ranks, row.role, row.operation, row.place.text) for row in rows] == [
        ((1,), Role.ABSENT, "all_reduce #54 of default_pg", "train.py:40 in step"),
        ((0, 2, 3), Role.WAITING, "all_reduce #55 of default_pg", "train.py:41 in step"),
    ]
    assert rows[1].after_s == (0.0, 3e-6)


def test_without_stacks_there_is_no_line_and_the_gap_is_said():
    story = tell_story(*told(stalled(4, [1], stacks=False)))
    assert {row.place.text for row in story.stuck} == {""}
    assert ("no stacks", (0, 1, 2, 3)) in [(gap.word, gap.ranks) for gap in story.gaps]


def test_the_innermost_frame_of_the_user_is_found_behind_torchs():
    torch = Frame(filename="/v/lib/site-packages/torch/nn/modules/module.py", line=1, name="__call__")
    mine = Frame(filename="/home/me/torch_runs/train.py", line=7, name="main")
    assert (place_of([torch, mine]).text, place_of([torch, mine]).users) == ("train.py:7 in main", True)
    assert (place_of([torch]).text, place_of([torch]).users) == ("module.py:1 in __call__", False)
    assert place_of([]).text == ""


def test_the_timeline_counts_from_the_first_that_waited():
    timeline = tell_story(*told(stalled(4, [1]))).timeline
    assert timeline.zero == "the first rank enters all_reduce #55"
    culprit, rest = timeline.rows
    assert (culprit.ranks, rest.ranks) == ((1,), (0, 2, 3))
    assert seconds_text(culprit.marks[-1].at_s) == "\N{MINUS SIGN}10 ms"
    assert (rest.marks[-1].pending, rest.marks[-1].from_s) == (True, 0.0)


def test_a_healthy_job_has_a_picture_and_no_stuck_ranks():
    story = tell_story(*told([dump(rank, 40, 4) for rank in range(4)]))
    assert (story.verdict, story.stuck, story.culprits) == ("no-hang", (), ())
    assert [row.label for row in story.pictures[0].rows] == ["ranks 0-3 (4)"]
    assert story.timeline.zero == "the last operation that any rank recorded"
    assert story.next_steps


def test_a_diagnosis_alone_is_told_too():
    found = diagnose(stalled(4, [1]))
    story = tell_story(found)
    assert story.sentence == "rank 1 never entered all_reduce #55 of default_pg; ranks 0, 2, 3 waited"
    assert story.timeline.rows == ()


def test_every_sort_of_missing_evidence_says_what_it_would_have_told():
    bad = UnreadableDump(rank=3, file="fr_3", error="cut", salvaged_entries=7)
    dumps = stalled(5, [1], lost=[1, 3])
    found = diagnose(dumps, unreadable=[bad], stale=[4])
    words = {gap.word: gap for gap in tell_story(found, dumps).gaps}
    assert words["missing"].ranks
    assert "7 operations" in words["unreadable"].told
    assert words["stale"].ranks == (4,)
    assert all(gap.told for gap in words.values())
    assert tell_story(*told(stalled(4, [1]))).gaps == ()


def test_the_order_of_dumps_changes_nothing():
    found, dumps = told(stalled(6, [2], lost=[4]))
    assert tell_story(found, reversed(dumps)) == tell_story(found, dumps)


def test_dumps_are_looked_at_once():
    found, dumps = told(stalled(4, [1]))
    assert tell_story(found, iter(dumps)) == tell_story(found, dumps)


def test_a_brief_story_stands_the_same_and_has_a_short_picture():
    whole, brief = (tell_story(*told(stalled(4, [1], at=300)), before=before) for before in (190, BRIEF))
    assert (brief.stuck, brief.timeline, brief.gaps) == (whole.stuck, whole.timeline, whole.gaps)
    assert brief.pictures[0].columns < 40 < whole.pictures[0].columns


def test_two_dumps_of_a_rank_are_one_row_and_what_is_finished_stays_finished():
    found, dumps = told(stalled(3, [1]))
    early = msgspec.structs.replace(dumps[1], only_active=True, operations=())
    story = tell_story(found, [*dumps, early])
    assert story == tell_story(found, dumps)


def test_members_that_a_dump_makes_up_do_not_fill_the_page():
    (lonely, _) = stalled(2, [1])
    group = msgspec.structs.replace(lonely.groups[0], ranks=tuple(range(0, 100_000, 2)))
    story = tell_story(*told([msgspec.structs.replace(lonely, groups=(group,))]))
    assert sum(row.count for row in story.pictures[0].rows) == 50_000
    assert len(msgspec.json.encode(story.pictures)) < 500_000


def test_thousands_of_ranks_that_all_differ_stay_within_the_budget():
    dumps = [
        dump(rank, 300 - (rank == 7), 400, pending=rank != 7, kept=2 + rank % 180, stacks=False) for rank in range(400)
    ]
    whole = tell_story(*told(dumps))
    size = len(msgspec.json.encode(whole.pictures))
    assert size < 500_000
    assert sum(row.count for row in whole.pictures[0].rows) == 400
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hangdrill.report.story.picture.MOST_CELLS", 4000)
        small = tell_story(*told(dumps)).pictures[0]
    assert len(small.rows) * small.columns <= 4000
    assert small.first <= 300 < small.first + small.columns


@pytest.mark.parametrize(
    "case", sorted(path.parent for path in DATA.glob("*/*/truth.json")), ids=lambda case: case.name
)
def test_every_real_case_is_told(case):
    evidence = read_evidence(case)
    found = diagnose(evidence.dumps, unreadable=evidence.unreadable)
    story = tell_story(found, evidence.dumps)
    assert {rank for row in story.stuck if row.is_culprit for rank in row.ranks} == {one.rank for one in found.culprits}
    if found.verdict is HangVerdict.HANG:
        assert story.pictures[0].is_stuck
        column = story.pictures[0].stuck - story.pictures[0].first
        waiting = [row for row in story.pictures[0].rows if row.role is Role.WAITING]
        assert waiting
        assert {cells(row)[column] for row in waiting} <= {"p", "m"}


def test_a_real_stack_of_torch_leads_to_the_users_line():
    evidence = read_evidence(DATA / "h200" / "legacy-stall")
    story = tell_story(diagnose(evidence.dumps), evidence.dumps)
    assert [row.place.text for row in story.stuck] == ["worker.py:81 in <module>"] * 2


def test_hostile_text_cannot_steer_a_terminal():
    assert shown("a\x1b[2J\nb\u202ec") == "a\ufffd[2J\ufffdb\ufffdc"
    assert len(shown("x" * 10_000)) < 320
    assert shown("naïve μ 中文") == "naïve μ 中文"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0"),
        (0.0124, "+12.4 ms"),
        (-3.2, "\N{MINUS SIGN}3.2 s"),
        (600.0, "+10 min"),
        (-90000.0, "\N{MINUS SIGN}25 h"),
    ],
)
def test_times_are_said_in_a_unit_that_fits(seconds, text):
    assert seconds_text(seconds) == text
