"""A stack that changes between two cells is found at the end, and what was measured meanwhile is not taken again."""

import shutil
from pathlib import Path

import pytest
from fake_cells import FakeCell, every_item
from fake_pythons import fake_python
from test_certify_run import a_plan, run, verdicts

from hangdrill.certify.cells import CellContext, CellResult
from hangdrill.model.errors import MachineError
from hangdrill.model.receipt import Item, Line, Receipt
from hangdrill.model.verdict import Verdict

SIDES = {"baseline": "a", "candidate": "b"}


def changing(tmp_path: Path, side: str, cell_id: str = "fake/change") -> FakeCell:
    """A cell in the middle of which somebody installs another NCCL into that stack."""

    def change(context: CellContext) -> CellResult:
        given = {"torch": "2.14.1+cu130"} if side == "baseline" else {}
        fake_python(tmp_path / SIDES[side] / "python", nccl="2.31.0", **given)
        line = Line(id=f"{cell_id}/held", item=Item.WORK, verdict=Verdict.PASS, claim="it holds")
        return CellResult(id=cell_id, lines=(line,))

    return FakeCell(id=cell_id, does=change)


def line_of(receipt: Receipt, side: str) -> Line:
    return next(line for line in receipt.lines if line.id == f"stack/{side}/unchanged")


def test_stacks_that_stay_as_they_are_pass_and_say_which_fingerprint(tmp_path: Path) -> None:
    receipt = run(tmp_path, every_item())
    for side, stack in (("baseline", receipt.baseline), ("candidate", receipt.candidate)):
        line = line_of(receipt, side)
        assert (line.verdict, stack.digest[:12] in line.detail) == (Verdict.PASS, True)


@pytest.mark.parametrize("side", SIDES)
def test_a_stack_that_changed_between_two_cells_fails_the_receipt_and_is_named(tmp_path: Path, side: str) -> None:
    receipt = run(tmp_path, [*every_item(), changing(tmp_path, side)])
    assert receipt.verdict is Verdict.FAIL
    line = line_of(receipt, side)
    assert "the stack changed while it was measured: nccl (" in line.detail
    assert "-> 2.31.0" in line.detail
    (other,) = set(SIDES) - {side}
    assert line_of(receipt, other).verdict is Verdict.PASS


def test_what_was_measured_while_it_changed_is_not_taken_once_it_is_changed_back(tmp_path: Path) -> None:
    loaded = a_plan(tmp_path)
    run(tmp_path, [FakeCell(), changing(tmp_path, "candidate")], loaded=loaded)
    fake_python(tmp_path / "b" / "python")
    again, other = FakeCell(), FakeCell(id="fake/change")
    receipt = run(tmp_path, [again, other], resume=True, loaded=loaded)
    assert (again.ran, other.ran) == (["fake/one"], ["fake/change"])
    assert line_of(receipt, "candidate").verdict is Verdict.PASS


def test_earlier_results_of_an_unchanged_stack_are_taken_and_the_line_says_so(tmp_path: Path) -> None:
    run(tmp_path, [FakeCell()])
    again = FakeCell()
    receipt = run(tmp_path, [again], resume=True)
    assert again.ran == []
    line = line_of(receipt, "candidate")
    assert (line.verdict, "earlier results" in line.detail) == (Verdict.PASS, True)


def test_where_nothing_was_measured_nothing_stayed_unchanged(tmp_path: Path) -> None:
    assert verdicts(run(tmp_path, []))["stack/candidate/unchanged"] is Verdict.UNKNOWN


def test_a_stack_that_is_gone_at_the_end_is_unknown(tmp_path: Path) -> None:
    def remove(context: CellContext) -> CellResult:
        shutil.rmtree(tmp_path / "b")
        return CellResult(id="fake/one")

    line = line_of(run(tmp_path, [FakeCell(does=remove)]), "candidate")
    assert line.verdict is Verdict.UNKNOWN
    assert "any more" in line.detail


def test_nobody_goes_on_with_a_cell_that_did_not_end_while_the_stack_changed(tmp_path: Path) -> None:
    class Going(FakeCell, frozen=True, kw_only=True):
        goes_on: bool = True

    def measured(context: CellContext) -> CellResult:
        before = sorted(path.name for path in context.cell_dir.iterdir())
        (context.cell_dir / "01-candidate.run.json").touch()
        raise MachineError(f"found {before}")

    loaded = a_plan(tmp_path)
    run(tmp_path, [Going(does=measured), changing(tmp_path, "candidate")], loaded=loaded)
    fake_python(tmp_path / "b" / "python")
    for found in ("[]", "['01-candidate.run.json']"):  # begun anew, and then gone on with
        receipt = run(tmp_path, [Going(does=measured), FakeCell(id="fake/change")], resume=True, loaded=loaded)
        assert next(cell.why_not for cell in receipt.cells if cell.id == "fake/one") == f"found {found}"
