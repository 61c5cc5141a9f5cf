"""A certification that was interrupted loses the pair, save or restore that was running, and nothing before it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from certify_contexts import context_of
from checkpoint_cases import SCRIPT, this_stack
from fake_cells import FakeCell
from fake_pythons import fake_python

from hangdrill.certify.canary import CanaryCell
from hangdrill.certify.canary_others import VariantCell
from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.canary_runs import in_pairs
from hangdrill.certify.cells import GoesOn
from hangdrill.certify.checkpoint_attempts import DrillOptions
from hangdrill.certify.checkpoint_pairs import PairDrill, drill_pairs
from hangdrill.certify.checkpoints import CheckpointCell
from hangdrill.certify.kept import keep, read_kept
from hangdrill.certify.out import open_out
from hangdrill.certify.plan import plan_of
from hangdrill.certify.run import certify
from hangdrill.certify.script_cells import ScriptCell
from hangdrill.drill.waiting import Interrupt
from hangdrill.model.errors import Interrupted, MachineError
from hangdrill.model.receipt import CheckpointOutcome as Outcome

NOW = "2026-11-29T23:40:00Z"
SAVE_AND_RESTORE = """
import json, os, pathlib, sys
action, place, log = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
about = {"schema": "hangdrill.checkpoint-note/1", "rank": 0, "world_size": 1, "torch": "none", "outcome": "done"}
with log.open("a") as file:
    file.write(f"{action} {place.parent.name}\\n")
if action == "save":
    place.mkdir(parents=True)  # fails where a half checkpoint lies
    (place / "state").write_text("3")
values = {"step": (place / "state").read_text()}
prefix = os.environ["HANGDRILL_CHECKPOINT_NOTE"]
pathlib.Path(f"{prefix}.rank0.json").write_text(json.dumps({**about, "tensors": {}, "values": values}))
"""
EVERY_JOB = ["save a", "save b", "restore a", "restore b", "restore a", "restore b"]
"""Of two stacks; the place says whose checkpoint it is."""


class Pairs:
    """Twelve runs in six pairs, each of which ends at once."""

    def __init__(self, directory: Path) -> None:
        self.context = context_of(directory)
        self.ran: list[str] = []

    def measure(self, *, stop_at: str = "") -> list[float]:
        def run(role: str, directory: Path) -> CanaryRun:
            directory.mkdir()  # fails where a run was begun and not ended
            if directory.name == stop_at:
                raise Interrupted("stopped")
            self.ran.append(directory.name)
            return CanaryRun(world_size=1, wall_s=float(len(self.ran)), exit_code=0)

        names = {"baseline": "baseline", "candidate": "candidate"}
        found = in_pairs(self.context, run, names=names, pairs=6, hopeless=lambda role, runs: "")
        return [one.wall_s for one in (*found.baseline, *found.candidate)]

    def measure_both(self, *, stop_at: str = "") -> list[float]:
        def run(directories: Mapping[str, Path]) -> dict[str, CanaryRun]:
            for directory in directories.values():
                directory.mkdir()
            names = [directory.name for directory in directories.values()]
            if stop_at in names:
                raise Interrupted("stopped")
            self.ran += names
            return {role: CanaryRun(world_size=1, wall_s=float(len(self.ran)), exit_code=0) for role in directories}

        names = {"baseline": "baseline", "candidate": "candidate"}
        found = in_pairs(
            self.context, _never, names=names, pairs=6, hopeless=lambda role, runs: "", together=run
        )  # fmt: skip
        return [one.wall_s for one in (*found.baseline, *found.candidate)]


def _never(role: str, directory: Path) -> CanaryRun:
    raise AssertionError(f"{role} was run alone")


@pytest.fixture
def pairs(tmp_path: Path) -> Pairs:
    return Pairs(tmp_path)


def test_only_the_pairs_that_had_not_ended_are_measured(pairs: Pairs) -> None:
    with pytest.raises(Interrupted):
        pairs.measure(stop_at="06-baseline")
    before = list(pairs.ran)
    found = pairs.measure()
    assert (len(before), pairs.ran[len(before) :]) == (11, ["06-baseline"])
    assert sorted(found) == [float(at) for at in range(1, 13)]


def test_two_runs_in_turns_are_kept_together_or_not_at_all(pairs: Pairs) -> None:
    with pytest.raises(Interrupted):
        pairs.measure_both(stop_at="04-candidate")
    assert len(pairs.ran) == 6
    pairs.measure_both()
    assert pairs.ran[6:] == [
        "04-candidate",
        "04-baseline",
        "05-baseline",
        "05-candidate",
        "06-candidate",
        "06-baseline",
    ]
    pairs.ran.clear()
    (pairs.context.cell_dir / "03-candidate.run.json").unlink()
    pairs.measure_both()
    assert pairs.ran == ["03-baseline", "03-candidate"]


@pytest.mark.parametrize("damage", ["cut", "a number changed", "of another run", "gone"])
def test_a_record_that_is_not_what_was_kept_is_measured_again(pairs: Pairs, damage: str) -> None:
    pairs.measure()
    file = pairs.context.cell_dir / "03-candidate.run.json"
    text = file.read_text()
    changed = {
        "cut": text[: len(text) // 2],
        "a number changed": text.replace('"wall_s": 5.0', '"wall_s": 1.0').replace('"wall_s": 6.0', '"wall_s": 1.0'),
        "of another run": (pairs.context.cell_dir / "02-candidate.run.json").read_text(),
    }
    assert text not in changed.values()
    file.unlink()
    if damage in changed:
        file.write_text(changed[damage])
    pairs.ran.clear()
    pairs.measure()
    assert pairs.ran == ["03-candidate"]


def test_a_value_that_was_kept_comes_back_whole_and_under_its_key_alone(tmp_path: Path) -> None:
    value = CanaryRun(world_size=2, wall_s=0.1 + 0.2, unreadable=("x",))
    keep(tmp_path / "f", "key", value)
    assert read_kept(tmp_path / "f", "key", CanaryRun) == value
    assert read_kept(tmp_path / "f", "other", CanaryRun) is None
    (tmp_path / "f").write_bytes(b"\xff\xfe")
    assert read_kept(tmp_path / "f", "key", CanaryRun) is None


class Checkpoints:
    """The drill of two stacks with a script of one process; `jobs` tells which of its jobs were run."""

    def __init__(self, home: Path) -> None:
        self.work, self.log = home / "work", home / "jobs"
        self.work.mkdir()
        script = home / "script.py"
        script.write_text(SAVE_AND_RESTORE)
        words = f"{{python}} {script} %s {{checkpoint}} {self.log}"
        self.options = DrillOptions(
            variants=(SCRIPT,), cwd=home, ranks=1, limit_s=60.0, save=words % "save", restore=words % "restore"
        )

    def drill(self, *, stop_at: str = "", goes_on: bool = True) -> list[str]:
        """The jobs that this run started and that ended, all pairs being equal."""
        self.log.write_text("")
        interrupt = Interrupt()

        def tell(text: str) -> None:
            if stop_at and text.startswith(stop_at):
                interrupt.request()

        drill = PairDrill(
            self.options, work_dir=self.work, out_dir=self.work, interrupt=interrupt, tell=tell, goes_on=goes_on
        )
        table = drill_pairs(drill, [this_stack("a"), this_stack("b")], duplicated="b")
        assert {pair.outcome for pair in table.pairs} == {Outcome.EQUAL}
        assert all((self.work / path).is_file() for pair in table.pairs for path in pair.evidence)
        return self.log.read_text().splitlines()


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path)


def test_saves_and_restores_that_had_ended_are_not_repeated(checkpoints: Checkpoints) -> None:
    with pytest.raises(Interrupted):
        checkpoints.drill(stop_at="b restores")
    assert checkpoints.drill() == ["restore a", "restore b"]
    assert checkpoints.drill() == []


def test_an_interrupted_save_is_made_anew(checkpoints: Checkpoints) -> None:
    with pytest.raises(Interrupted):
        checkpoints.drill(stop_at="b saves")
    half = checkpoints.work / "saved" / "b" / "script"
    half.mkdir(exist_ok=True)
    (half / "half").write_text("")
    assert sorted(checkpoints.drill()) == sorted(EVERY_JOB[1:])
    assert not (half / "half").exists()


@pytest.mark.parametrize(
    ("path", "repeated"),
    [
        ("saved/b/script/state", ["save b"]),
        ("saved/b/script.manifest.json", ["save b"]),
        ("saved/b/notes/script.attempt.json", ["save b"]),
        ("saved/b/script.copy/state", []),
        ("restored-by/a/script@b.attempt.json", ["restore b"]),
        ("restored-by/a/script@b.rank0.json", ["restore b"]),
    ],
)
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_what_is_not_whole_is_made_again_and_nothing_else(
    checkpoints: Checkpoints, path: str, repeated: list[str], damage: str
) -> None:
    assert sorted(checkpoints.drill()) == sorted(EVERY_JOB)
    file = checkpoints.work / path
    file.unlink()
    if damage == "cut" and not path.endswith("rank0.json"):  # what the notes said is in the attempt's own file
        file.write_text("")
    assert checkpoints.drill() == repeated
    assert (checkpoints.work / "saved/b/script.copy/state").read_text() == "3"


def test_a_checkpoint_with_other_bytes_is_restored_anew(checkpoints: Checkpoints, tmp_path: Path) -> None:
    """The key of a restore is the checkpoint's own hash."""
    checkpoints.drill()
    script = tmp_path / "script.py"
    script.write_text(SAVE_AND_RESTORE.replace('"3"', '"4"'))
    (checkpoints.work / "saved/a/script/state").unlink()
    assert checkpoints.drill() == ["save a", "restore a", "restore a"]


def test_what_a_restore_that_did_not_end_has_noted_is_not_taken_for_the_next_ones(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    checkpoints.drill()
    home = checkpoints.work / "restored-by" / "a"
    (home / "script@b.attempt.json").unlink()
    script = tmp_path / "script.py"
    script.write_text(SAVE_AND_RESTORE.replace('prefix = os.environ["HANGDRILL_CHECKPOINT_NOTE"]', "raise SystemExit"))
    assert (home / "script@b.rank0.json").is_file()
    with pytest.raises(AssertionError, match="UNKNOWN"):
        checkpoints.drill()


def test_a_drill_that_does_not_go_on_repeats_everything(checkpoints: Checkpoints, tmp_path: Path) -> None:
    assert sorted(checkpoints.drill(goes_on=False)) == sorted(EVERY_JOB)
    assert not list(checkpoints.work.rglob("*.attempt.json"))


class GoingCell(FakeCell, frozen=True, kw_only=True):
    """Counts its runs in its own directory, and cannot end before the third."""

    goes_on: bool = True

    def run(self, context):
        runs = context.cell_dir / "runs"
        runs.write_text((runs.read_text() if runs.exists() else "") + "x")
        self.ran.append(runs.read_text())
        if len(self.ran) < 3:
            raise MachineError("the disk is full")
        return super().run(context)


def run_cell_of(home: Path, cell: FakeCell, *, title: str = "up", steps: int = 20) -> None:
    python = fake_python(home / "python")
    sides = f'[baseline]\npython = "{python}"\n[candidate]\npython = "{python}"\n'
    plan = plan_of(
        f'title = "{title}"\n{sides}[workload]\nsteps = {steps}\n', path=home / "plan.toml", environ=os.environ
    )
    from datetime import datetime, timezone

    now = datetime(2026, 11, 29, tzinfo=timezone.utc)
    resume = (home / "out").exists()
    certify(plan, out_dir=home / "out", environ=os.environ, who="kim", clock=lambda: now, cells=[cell], resume=resume)


def test_a_cell_that_can_go_on_finds_what_it_left_until_it_has_ended(tmp_path: Path) -> None:
    cell = GoingCell(id="one")
    for _ in range(3):
        run_cell_of(tmp_path, cell)
    assert cell.ran == ["x", "xx", "xxx", "one"]
    (tmp_path / "out" / "cells" / "one.json").unlink()  # "to run one again, remove it"
    run_cell_of(tmp_path, cell)
    assert cell.ran[4:] == ["x", "one"]


def test_a_cell_of_another_plan_finds_nothing(tmp_path: Path) -> None:
    cell = GoingCell(id="one")
    run_cell_of(tmp_path, cell)
    run_cell_of(tmp_path, cell, steps=21)
    assert cell.ran == ["x", "x"]


def test_any_other_cell_begins_in_an_empty_directory(tmp_path: Path) -> None:
    with open_out(tmp_path / "out", resume=False) as out:
        (out.begin("one", "key", goes_on=False, now=NOW)[0] / "left").write_text("")
        assert not list(out.begin("one", "key", goes_on=False, now=NOW)[0].iterdir())


def test_a_cell_that_goes_on_began_when_it_first_did_and_not_too_long_ago(tmp_path: Path) -> None:
    later, too_late = "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"
    with open_out(tmp_path / "out", resume=False) as out:
        first, began = out.begin("one", "key", goes_on=True, now=NOW)
        (first / "left").write_text("")
        assert (began, out.begin("one", "key", goes_on=True, now=later, since=NOW)) == (NOW, (first, NOW))
        assert (first / "left").exists()
        assert out.begin("one", "key", goes_on=True, now=too_late, since=later) == (first, too_late)
        assert not list(first.iterdir())


def test_the_cells_that_take_long_can_go_on(tmp_path: Path) -> None:
    plan = context_of(tmp_path, script=Path(sys.executable)).plan
    cells = [CanaryCell(plan), VariantCell(plan, "nccl-lazy"), CheckpointCell(plan), ScriptCell(plan)]
    assert [type(cell).__name__ for cell in cells if not isinstance(cell, GoesOn)] == []


def test_a_known_good_checkpoint_is_read_again_once_it_has_changed(checkpoints: Checkpoints, tmp_path: Path) -> None:
    from hangdrill.certify.checkpoint_kept import key_of_files

    place = tmp_path / "known"
    assert key_of_files(place) == ""
    place.mkdir()
    (place / "state").write_text("3")
    before = key_of_files(place)
    assert before == key_of_files(place) != ""
    (place / "state").write_text("44")
    assert key_of_files(place) != before
