"""--resume takes what was measured here, and nothing that somebody has made out of it."""

import os
import shutil
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_cells import FakeCell
from fake_pythons import fake_python

from hangdrill.certify.cells import CellContext, CellResult, Claim
from hangdrill.certify.plan import plan_of
from hangdrill.certify.run import certify
from hangdrill.model.errors import MachineError
from hangdrill.model.receipt import Item, Receipt
from hangdrill.model.verdict import Verdict

NOW = datetime(2026, 11, 29, 23, 40, tzinfo=timezone.utc)


class Certification:
    """One failing cell that was measured; what lies in its directory can then be edited."""

    def __init__(self, home: Path) -> None:
        self.home, self.file = home, home / "out" / "cells" / "one.json"
        self.samples = home / "out" / "cells" / "one" / "samples.txt"
        fake_python(home / "python")
        assert self.run(resume=False).ran

    def run(self, *, resume: bool = True, cell: FakeCell | None = None) -> FakeCell:
        text = f'title = "up"\n[baseline]\npython = "{self.home}/python"\n[candidate]\npython = "{self.home}/python"\n'
        cell = cell or FakeCell(id="one", verdict=Verdict.FAIL)
        plan = plan_of(text, path=self.home / "plan.toml", environ=os.environ)
        certify(
            plan,
            out_dir=self.home / "out",
            environ=os.environ,
            who="kim",
            clock=lambda: NOW,
            cells=[cell],
            resume=resume,
        )
        return cell

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        found = msgspec.json.decode(self.file.read_bytes())
        change(found)
        self.file.write_bytes(msgspec.json.encode(found))

    def verdict(self) -> Verdict:
        receipt = msgspec.json.decode((self.home / "out" / "receipt.json").read_bytes(), type=Receipt)
        return next(line.verdict for line in receipt.lines if line.id == "one/held")


@pytest.fixture
def made(tmp_path: Path) -> Certification:
    return Certification(tmp_path)


def test_what_nobody_touched_is_taken(made: Certification) -> None:
    assert not made.run().ran
    made.edit(lambda found: None)  # in another layout: the same result
    assert not made.run().ran


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["lines"][0].update(verdict="pass"),
        lambda found: found["lines"].clear(),
        lambda found: found["artifacts"].clear(),
        lambda found: found.update(controls=[{"name": "x", "claim": "y", "got": "fail"}]),
        lambda found: found.pop("seal"),
        lambda found: found.update(seal=""),
    ],
    ids=["verdict", "lines", "artifacts", "controls", "no-seal", "empty-seal"],
)
def test_a_pass_made_by_hand_is_not_taken(made: Certification, change: Callable[[dict[str, Any]], None]) -> None:
    made.edit(change)
    assert made.run().ran
    assert made.verdict() is Verdict.FAIL


def test_the_result_of_another_cell_is_not_taken(made: Certification) -> None:
    found = msgspec.json.decode(made.file.read_bytes(), type=CellResult)
    made.file.write_bytes(msgspec.json.encode(msgspec.structs.replace(found, id="other").sealed()))
    assert made.run().ran


@pytest.mark.parametrize("way", ["edited", "gone", "directory"])
def test_a_result_whose_evidence_has_changed_is_measured_again(made: Certification, way: str) -> None:
    made.samples.unlink()
    if way == "edited":
        made.samples.write_text("1 2 4\n")
    elif way == "directory":
        made.samples.mkdir()
    assert made.run().ran


@pytest.mark.parametrize("length", [0, 1, 100])
def test_a_cut_result_is_measured_again(made: Certification, length: int) -> None:
    made.file.write_bytes(made.file.read_bytes()[:length])
    assert made.run().ran


def test_what_another_hangdrill_promised_is_measured_again(
    made: Certification, monkeypatch: pytest.MonkeyPatch
) -> None:
    class More(FakeCell, frozen=True, kw_only=True):
        @property
        def claims(self) -> tuple[Claim, ...]:
            return (*super().claims, Claim(id="one/more", item=Item.WORK, claim="and more"))

    assert made.run(cell=More(id="one")).ran
    assert not made.run(cell=More(id="one")).ran
    monkeypatch.setattr("hangdrill.certify.running.__version__", "99")
    assert made.run(cell=More(id="one")).ran


def test_a_directory_in_which_nothing_had_begun_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "out" / "cells").mkdir(parents=True)
    (tmp_path / "out" / ".lock").touch()
    assert Certification(tmp_path).file.is_file()


def test_a_directory_that_is_deleted_meanwhile_ends_it(tmp_path: Path) -> None:
    def deleted(context: CellContext) -> CellResult:
        shutil.rmtree(context.out_dir)
        context.cell_dir.mkdir(parents=True)  # as a job does that makes its own directory
        return CellResult(id="one")

    made = Certification(tmp_path)
    made.file.unlink()
    with pytest.raises(MachineError, match="deleted while it was written"):
        made.run(cell=FakeCell(id="one", does=deleted))
    assert not (tmp_path / "out" / "receipt.json").exists()


@pytest.mark.parametrize("way", ["edited", "gone", "same"])
def test_an_older_checkpoint_that_is_another_one_now_is_read_again(tmp_path: Path, way: str) -> None:
    state = tmp_path / "step_9" / "state"
    state.parent.mkdir()
    state.write_text("3")
    python = fake_python(tmp_path / "python")
    side = f'python = "{python}"\n'
    text = f'title = "up"\n[baseline]\n{side}[candidate]\n{side}[checkpoint]\nknown_good = "step_9"\n'
    plan = plan_of(text, path=tmp_path / "plan.toml", environ=os.environ)

    def ran(*, resume: bool) -> bool:
        cell = FakeCell(id="checkpoint", item=Item.CHECKPOINT)
        options = {"out_dir": tmp_path / "out", "environ": os.environ, "who": "kim", "clock": lambda: NOW}
        certify(plan, cells=[cell], resume=resume, **options)
        return bool(cell.ran)

    assert ran(resume=False)
    if way == "edited":
        state.write_text("44")
    elif way == "gone":
        shutil.rmtree(state.parent)
    assert ran(resume=True) is (way != "same")


def test_a_stack_that_is_away_for_a_while_costs_no_measurement(made: Certification) -> None:
    python = made.home / "python"
    python.rename(made.home / "away")
    assert not made.run().ran
    assert made.verdict() is Verdict.UNKNOWN
    receipt = msgspec.json.decode((made.home / "out" / "receipt.json").read_bytes(), type=Receipt)
    assert "cells/one.json" not in {file.path for file in receipt.artifacts}
    (made.home / "away").rename(python)
    assert not made.run().ran
    assert made.verdict() is Verdict.FAIL
