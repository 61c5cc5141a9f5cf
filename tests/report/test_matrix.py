"""A cell says right, cannot tell or wrong by the check of the culprit alone; other failures get a mark and a name."""

from healthy_runs import diagnosis, held_run, lose_rank, mutate
from sample_results import named, passed_run, result_of, unknown_run

from hangdrill.model.diagnosis import Basis, Culprit
from hangdrill.report.matrix import CellWord, MatrixCell, cell_text, cells_of, is_matrix, matrix_markdown

RIGHT = result_of(passed_run())
CANNOT = result_of(unknown_run())
WRONG = result_of(
    mutate(held_run(), diagnosis=mutate(diagnosis(), culprits=(Culprit(rank=0, basis=Basis.OBSERVED, why=""),)))
)
BROKEN = result_of(lose_rank(held_run(), 3))


def test_names_are_read_with_hyphens_in_workload_and_kind():
    names = [
        "faults/all-to-all-wrong-op-r2",
        "x/mesh-2d-none",
        "tensor-parallel-hold-gil-r0",
        "quick/other",
        "ddp-odd-r1",
    ]
    found = [(cell.workload, cell.kind, cell.rank) for cell in cells_of([named(RIGHT, name) for name in names])]
    assert found == [("all-to-all", "wrong-op", 2), ("mesh-2d", "none", None), ("tensor-parallel", "hold-gil", 0)]


def test_word_is_the_verdict_on_the_culprit():
    results = [named(RIGHT, "ddp-hold-r0"), named(CANNOT, "ddp-hold-r1"), named(WRONG, "ddp-hold-r2")]
    cells = cells_of(results)
    assert [cell.word for cell in cells] == [CellWord.RIGHT, CellWord.CANNOT_TELL, CellWord.WRONG]
    assert cell_text(cells) == "right 0; cannot tell 1; wrong 2"
    assert cell_text(cells[:1]) == "right"


def test_drill_that_never_judged_a_culprit_cannot_tell():
    [cell] = cells_of([named(mutate(RIGHT, checks=()), "ddp-hold-r0")])
    assert cell == MatrixCell(
        workload="ddp", kind="hold", rank=0, word=CellWord.CANNOT_TELL, why="the drill did not get so far"
    )


def test_quick_suite_is_no_matrix():
    assert not is_matrix([named(RIGHT, "quick/ddp-hold"), named(RIGHT, "quick/fsdp2-kill")])
    assert not is_matrix([named(RIGHT, f"ddp-hold-r{rank}") for rank in (0, 1)] + [named(RIGHT, "quick/other")])
    assert is_matrix([named(RIGHT, f"ddp-hold-r{rank}") for rank in (0, 1)])


def test_markdown_has_the_table_the_counts_and_the_reasons():
    results = [named(RIGHT, "f/ddp-hold-r0"), named(BROKEN, "f/ddp-hold-r1"), named(CANNOT, "f/pipeline-hold-r0")]
    results.append(named(RIGHT, "f/ddp-none"))
    assert matrix_markdown(results).splitlines() == [
        "| fault | ddp | pipeline |",
        "| --- | --- | --- |",
        "| none | right |  |",
        "| hold | right* | cannot tell |",
        "",
        "4 cells: 3 right, 1 cannot tell, 0 wrong.",
        "",
        "- * failed: every-rank-dumped, arrival-as-known (ddp: hold rank 1)",
        "- cannot tell: the evidence cannot tell who it was; gloo records no p2p, so nothing is pending in the dumps"
        " (pipeline: hold)",
    ]
