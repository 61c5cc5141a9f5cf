"""Ranks whose part in the stuck operation differs share no row, in the table, the timeline and the picture."""

from pathlib import Path

import pytest

from hangdrill.incident import diagnose_evidence, read_incident
from hangdrill.report.story import tell_story

DUMPS = Path(__file__).resolve().parents[1] / "data/dumps/h200"


def told(case):
    evidence = read_incident([DUMPS / case])
    return tell_story(diagnose_evidence(evidence), evidence.dumps)


def test_two_sizes_are_two_rows_and_each_says_its_own():
    story = told("nccl-shape-mismatch")
    [picture] = [one for one in story.pictures if one.is_stuck]
    assert [row.label for row in picture.rows] == ["rank 0", "rank 1"]
    assert [text for row in picture.rows for _, text in row.odd] == [
        "all_reduce, 1048576 elements (Float)",
        "all_reduce, 77 elements (Float)",
    ]
    assert [row.ranks for row in story.timeline.rows] == [(0,), (1,)]
    assert [row.operation.partition(", ")[2] for row in story.stuck] == [
        "1048576 elements (Float)",
        "77 elements (Float)",
    ]


@pytest.mark.parametrize("case", ["nccl-stall", "legacy-stall"])
def test_of_a_plain_stall_no_size_is_told(case):
    story = told(case)
    assert not any("elements" in row.operation for row in story.stuck)
    assert not any(row.odd for picture in story.pictures for row in picture.rows)
