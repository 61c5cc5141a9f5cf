"""One sentence says who did what, who waited and where the culprit stands; without a culprit it names nobody."""

import pytest
from healthy_runs import diagnosis, held_run, mutate, no_hang, undecided
from sample_results import passed_run

from hangdrill.model.diagnosis import Basis, Culprit, HangKind
from hangdrill.model.dump import Frame
from hangdrill.report.sentence import diagnosis_sentence, drill_sentence, place_text


def test_drill_sentence_has_the_wait_and_the_line():
    assert drill_sentence(passed_run()) == (
        "rank 1 never entered all_reduce #4 of default_pg; ranks 0, 2, 3 waited 5.0 s; held at train.py:42"
    )


def test_drill_sentence_leaves_out_what_is_not_known():
    run = mutate(held_run(), dumps={}, faults=())
    assert drill_sentence(run) == "rank 1 never entered all_reduce #4 of default_pg; ranks 0, 2, 3 waited"
    assert drill_sentence(mutate(run, diagnosis=None)) == "there is no diagnosis"
    assert drill_sentence(mutate(held_run(), diagnosis=no_hang())) == "no hang: nothing is pending"


@pytest.mark.parametrize(
    ("kind", "deed"),
    [
        (HangKind.RANK_ABSENT, "never entered all_reduce #4 of default_pg"),
        (HangKind.OP_MISMATCH, "called another operation than all_reduce #4 of default_pg"),
        (HangKind.SHAPE_MISMATCH, "entered all_reduce #4 of default_pg with another size"),
        (HangKind.DTYPE_MISMATCH, "entered all_reduce #4 of default_pg with another dtype"),
        (HangKind.P2P_UNMATCHED, "never answered all_reduce #4 of default_pg"),
        (HangKind.ORDER_INVERSION, "entered operations in another order around all_reduce #4 of default_pg"),
    ],
)
def test_each_kind_has_its_own_words(kind, deed):
    assert diagnosis_sentence(mutate(diagnosis(), kind=kind)) == f"rank 1 {deed}; ranks 0, 2, 3 waited"


def test_nobody_is_named_without_a_culprit():
    nobody = mutate(diagnosis(), culprits=(), stuck=mutate(diagnosis().stuck, waiting=(0, 1, 2, 3), absent=()))
    assert diagnosis_sentence(mutate(nobody, kind=HangKind.ALL_JOINED)) == (
        "ranks 0, 1, 2, 3 all entered all_reduce #4 of default_pg and nobody finished"
    )
    assert diagnosis_sentence(mutate(nobody, kind=None)) == (
        "ranks 0, 1, 2, 3 wait in all_reduce #4 of default_pg, and the dumps cannot say for whom"
    )
    assert diagnosis_sentence(mutate(nobody, stuck=None)) == "a hang (rank-absent), nobody can be named"


def test_undecided_gives_the_first_reason():
    assert diagnosis_sentence(mutate(undecided(), notes=("No dumps.",))) == (
        "cannot tell whether there was a hang: No dumps"
    )
    assert diagnosis_sentence(mutate(undecided(), notes=())) == "cannot tell whether there was a hang"


def test_culprit_without_a_stuck_operation_is_still_named():
    two = tuple(Culprit(rank=rank, basis=Basis.OBSERVED, why="") for rank in (0, 3))
    assert diagnosis_sentence(mutate(diagnosis(), stuck=None, kind=None, culprits=two)) == "a hang, ranks 0, 3 named"


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
