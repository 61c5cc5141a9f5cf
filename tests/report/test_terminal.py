"""The tables say everything in words, at 80 and at 120 columns, and a drill that left nothing says it once."""

import io

import pytest
from healthy_runs import diagnosis, mutate, no_hang, undecided
from rich.console import Console
from sample_results import failed_run, named, passed_run, result_of, unknown_run

from hangdrill.model.diagnosis import Basis, Culprit, RankRoll, UnreadableDump
from hangdrill.report.terminal import print_diagnosis, print_matrix, print_plan, print_result, print_summary

RUN_DIR = "/home/me/hangdrill-runs/20261129T174300Z-3f9c/quick/ddp-hold"


def printed(print_it, *arguments, width=120, **options):
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, **options)
    print_it(console, *arguments)
    return console.file.getvalue()


def words_of(text):
    return " ".join(text.split())


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_but_the_path_is_wider_than_the_terminal(width):
    for run in (passed_run(), failed_run(), unknown_run()):
        text = printed(print_result, result_of(run), RUN_DIR, run, width=width)
        assert [line for line in text.splitlines() if len(line) > width and RUN_DIR not in line] == []
        assert RUN_DIR in text.splitlines()[-1]


def test_passed_drill_shows_checks_ranks_sentence_and_verdict():
    run = passed_run()
    text = printed(print_result, result_of(run), RUN_DIR, run)
    assert "every-rank-dumped   PASS      4 of 4 dumps arrived" in text
    assert "1   absent (hold)   2.0 KiB by handler   all_reduce #3 of default_pg   train.py:42" in text
    sentence = "rank 1 never entered all_reduce #4 of default_pg; ranks 0, 2, 3 waited 5.0 s; held at train.py:42"
    assert f" {sentence}" in text
    assert "PASS  quick/ddp-hold in 9.8 s; checks: 20 passed" in text


def test_ranks_are_shown_from_the_result_alone():
    text = printed(print_result, result_of(passed_run()), RUN_DIR)
    assert "0   waiting   2.0 KiB by handler   all_reduce #4 of default_pg" in text
    assert "stands at" not in text


def test_failed_drill_shows_the_mend_and_says_once_that_nothing_arrived():
    run = failed_run()
    text = words_of(printed(print_result, result_of(run), RUN_DIR, run))
    assert "gloo has no abort hook, so torch never dumps by itself mend: use trigger" in text
    assert text.count("no dump arrived") == 1
    assert "12 checks UNKNOWN" in text
    assert "checks: 5 passed, 1 failed, 14 unknown" in text


def test_result_of_a_drill_that_never_ran_is_printed():
    result = mutate(result_of(passed_run()), checks=(), diagnosis=None, artifacts=(), sentence="")
    assert "PASS  quick/ddp-hold in 9.8 s; no check" in printed(print_result, result, RUN_DIR)


def test_summary_has_a_row_a_drill_and_the_counts():
    results = [result_of(run) for run in (passed_run(), failed_run(), unknown_run())]
    text = words_of(printed(print_summary, results))
    assert "PASS quick/ddp-hold 9.8 s rank 1 never entered all_reduce #4" in text
    assert "FAIL delivery/native-gloo 9.8 s every-rank-dumped: 0 of 4 dumps arrived" in text
    assert "UNKNOWN faults/pipeline-hold-r1 9.8 s culprit: the evidence cannot tell who it was" in text
    assert "3 drills PASS 1 FAIL 1 UNKNOWN 1" in text


def test_results_that_are_no_matrix_are_summed_up():
    results = [result_of(passed_run())]
    assert printed(print_matrix, results) == printed(print_summary, results)


@pytest.mark.parametrize("width", [80, 120])
def test_matrix_has_a_word_in_each_cell(width):
    right, cannot = result_of(passed_run()), result_of(unknown_run())
    results = [named(right, f"faults/ddp-hold-r{rank}") for rank in (0, 1, 2)]
    results += [named(cannot, f"faults/pipeline-hold-r{rank}") for rank in (0, 1, 2)]
    text = printed(print_matrix, results, width=width)
    assert "hold    right   cannot tell" in text
    assert "6 cells: 3 right, 3 cannot tell, 0 wrong" in text
    assert "(pipeline: hold)" in words_of(text)


def test_diagnosis_names_who_is_stuck_where_and_what_is_next():
    text = words_of(printed(print_diagnosis, diagnosis()))
    assert text.startswith("HANG rank 1 never entered all_reduce #4 of default_pg; ranks 0, 2, 3 waited")
    assert "stuck in all_reduce #4 of default_pg (ranks 0, 1, 2, 3) waiting ranks 0, 2, 3 absent rank 1" in text
    assert "look next at the stacks and the log of rank 1, and the host" in text


def test_diagnosis_shows_what_is_missing_and_what_is_inferred():
    bad = UnreadableDump(rank=2, file="fr_2", error="cut at byte 812", salvaged_entries=7)
    roll = RankRoll(expected=4, present=(0, 3), missing=(1,), unreadable=(bad,), stale=(3,), empty=(0,))
    inferred = (Culprit(rank=1, basis=Basis.INFERRED, why="no dump"),)
    text = words_of(printed(print_diagnosis, mutate(diagnosis(), ranks=roll, culprits=inferred)))
    for words in (
        "rank 1 left no sign of having entered all_reduce #4 of default_pg",
        "rank 1 (inferred, not observed): no dump",
        "dumps 2 of 4 missing rank 1 would have told: whether it entered all_reduce #4 of default_pg",
        "unreadable rank 2, fr_2: cut at byte 812 would have told: what came after the 7 operations",
        "stale rank 3 would have told: the rank's history in this job",
        "empty rank 0 would have told:",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("found", "start", "advice"),
    [
        (no_hang(), "NO HANG no hang: no operation is pending", "the stacks and the data loader"),
        (undecided(), "UNDECIDED cannot tell whether there was a hang: gloo records no p2p", "the GPUs, the network"),
        (mutate(undecided(), ranks=RankRoll(expected=2, missing=(1,))), "UNDECIDED", "the logs of rank 1"),
    ],
)
def test_diagnosis_without_a_culprit_says_where_to_look(found, start, advice):
    text = words_of(printed(print_diagnosis, found))
    assert text.startswith(start)
    assert f"look next at {advice}" in text


def test_plan_shows_named_lists():
    text = printed(print_plan, "quick/ddp-hold", {"command": "torchrun x", "environment": ["A=1", "B=2"], "none": []})
    assert words_of(text) == "quick/ddp-hold command torchrun x environment A=1 B=2 none -"


def test_names_with_brackets_are_not_taken_for_markup():
    result = mutate(result_of(passed_run()), sentence="rank 1 [bold]never[/bold] [/oops] entered")
    assert "[bold]never[/bold] [/oops] entered" in printed(print_result, result, "/runs/[red]x")
    assert "/runs/[red]x" in printed(print_result, result, "/runs/[red]x")
