"""One sentence says who did what, who waited and where the culprit stands; without a culprit it names nobody."""

import pytest
from healthy_runs import diagnosis, held_run, mutate, no_hang, scenario
from sample_results import passed_run

from hangdrill.model.diagnosis import HangKind
from hangdrill.model.dump import Frame
from hangdrill.model.scenario import FaultKind
from hangdrill.report.sentence import drill_sentence, place_text


def test_drill_sentence_has_the_wait_and_the_line():
    assert drill_sentence(passed_run()) == (
        "rank 1 never entered all_reduce #4 of default_pg; ranks 0, 2, 3 waited 5.0 s; held at train.py:42"
    )


def test_drill_sentence_leaves_out_what_is_not_known():
    run = mutate(held_run(), dumps={}, faults=())
    assert drill_sentence(run) == "rank 1 never entered all_reduce #4 of default_pg; ranks 0, 2, 3 waited"
    assert drill_sentence(mutate(run, diagnosis=None)) == "there is no diagnosis"
    assert drill_sentence(mutate(held_run(), diagnosis=no_hang())) == "no hang: no operation is pending"


def test_fault_that_does_not_hold_is_named_as_it_is():
    run = mutate(held_run(), scenario=scenario(fault={"kind": FaultKind.WRONG_OP}))
    run = mutate(run, diagnosis=mutate(diagnosis(), kind=HangKind.OP_MISMATCH))
    assert drill_sentence(run).endswith("; wrong-op at train.py:42")


@pytest.mark.parametrize(("kind", "verb"), [(FaultKind.STOP, "stopped"), (FaultKind.KILL, "killed")])
def test_what_was_done_to_the_rank_is_said_as_it_was(kind, verb):
    run = mutate(held_run(), scenario=scenario(fault={"kind": kind}))
    assert drill_sentence(run).endswith(f"; {verb} at train.py:42")


def test_innocent_report_gives_no_place():
    run = mutate(held_run(), diagnosis=mutate(diagnosis(), culprits=()))
    assert "held at" not in drill_sentence(run)


def test_place_is_the_innermost_line_of_the_users_own_code():
    names = [
        "/runs/agent/hangdrill/rank/faults.py",
        "/site-packages/torch/_tensor.py",
        "<frozen runpy>",
        "/home/me/train.py",
        "/home/me/main.py",
    ]
    frames = tuple(Frame(filename=name, line=index, name="f") for index, name in enumerate(names))
    assert place_text(frames) == "train.py:3"
    assert place_text(frames[:2]) == "faults.py:0"
    assert place_text(()) == ""
    workload = Frame(filename="/runs/agent/hangdrill/rank/workloads/ddp.py", line=17, name="main")
    assert place_text((*frames[:2], workload)) == "ddp.py:17"
