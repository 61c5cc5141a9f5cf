"""Real torch, real ranks: the pair table of 2.13.0, 2.14.1 and 2.15.0 is the measured one, and what a cell says of it.

One certification cell for all claims: the stacks are slow to start. HANGDRILL_ALL_PAIRS=1 (`make certify`) tries every
mode and layout. Stacks that are not there are skipped, with how to make them.
"""

import os
import sys
from importlib.metadata import version
from pathlib import Path

import msgspec
import psutil
import pytest
from checkpoint_cases import PLAIN, old_form, save_alone, stack_of, this_stack

from hangdrill.certify.cells import CellContext
from hangdrill.certify.checkpoint_attempts import DrillOptions
from hangdrill.certify.checkpoint_look import look
from hangdrill.certify.checkpoint_pairs import PairDrill, drill_pairs
from hangdrill.certify.checkpoints import CheckpointCell
from hangdrill.certify.stacks import Stack
from hangdrill.drill.waiting import Interrupt
from hangdrill.model.certify_plan import CertifyPlan, CheckpointPlan, NamedStack, StackPlan
from hangdrill.model.receipt import CheckpointOutcome as Outcome
from hangdrill.model.verdict import Verdict
from hangdrill.report.checkpoint_table import pairs_markdown
from hangdrill.report.progress import NoopListener

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(1800)]

WHOLE = bool(os.environ.get("HANGDRILL_ALL_PAIRS"))
MODES = ("sync", "async") if WHOLE else ("async",)
LAYOUTS = ("plain", "fsdp2") if WHOLE else ("fsdp2",)
VARIANTS = len(MODES) * len(LAYOUTS)
MEASURED = """\
| saved by | restored by baseline | restored by candidate | restored by 2.13.0 |
|---|---|---|---|
| baseline | yes | yes | yes |
| candidate | NO (one-way) | yes | NO (one-way) |
| 2.13.0 | yes | yes | yes |
"""


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """Of a plan with baseline 2.14.1, candidate the torch of the tests, and 2.13.0 beside them."""
    pythons = {"baseline": stack_of("2.14.1"), "candidate": sys.executable, "2.13.0": stack_of("2.13.0")}
    out_dir = tmp_path_factory.mktemp("certified")
    older = out_dir / "older"
    with old_form():  # as the real job's, of before the upgrade
        save_alone(older)
    plan = CertifyPlan(
        title="t",
        baseline=StackPlan(python=pythons["baseline"]),
        candidate=StackPlan(python=pythons["candidate"]),
        checkpoint=CheckpointPlan(
            modes=MODES,
            layouts=LAYOUTS,
            stack=(NamedStack(name="2.13.0", python=pythons["2.13.0"]),),
            known_good=str(older),
        ),
    )
    cell_dir = out_dir / "cells" / "checkpoint"
    cell_dir.mkdir(parents=True)
    return CellContext(
        plan=plan,
        stacks={name: Stack(name=name, python=python) for name, python in pythons.items()},
        out_dir=out_dir,
        cell_dir=cell_dir,
        environ=dict(os.environ),
        interrupt=Interrupt(),
        listener=NoopListener(),
    )


@pytest.fixture(scope="module")
def certified(context):
    """What the cell came to, and where."""
    return CheckpointCell(context.plan).run(context), context.out_dir


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    mine = [process.cmdline() for process in psutil.Process().children(recursive=True) if process.is_running()]
    assert not [command for command in mine if "hangdrill.rank.checkpoint" in command]


def test_the_pair_table_is_the_measured_one(certified):
    result, _ = certified
    assert pairs_markdown(result.checkpoint_pairs).partition("\n\n")[0] + "\n" == MEASURED


@pytest.mark.skipif(not version("torch").startswith("2.15.0"), reason="the page tells of torch 2.15.0")
def test_the_page_shows_the_measured_table(certified):
    result, _ = certified
    names = {"2.13.0": "2.13.0", "baseline": "2.14.1", "candidate": "2.15.0"}
    pairs = [
        msgspec.structs.replace(pair, saved_by=names[pair.saved_by], restored_by=names[pair.restored_by])
        for pair in result.checkpoint_pairs
    ]
    pairs.sort(key=lambda pair: (pair.saved_by, pair.restored_by))
    page = Path(__file__).parents[2] / "docs" / "checkpoints.md"
    assert pairs_markdown(pairs).partition("\n\n")[0] in page.read_text(encoding="utf-8")


def test_the_refusal_says_its_cause_in_words_and_as_torch_does(certified):
    result, _ = certified
    refused = [pair for pair in result.checkpoint_pairs if pair.outcome is Outcome.REFUSED]
    assert len(refused) == 2 * VARIANTS  # on two older stacks
    for pair in refused:
        assert "its .metadata is in the form of torch 2.15" in pair.detail
        assert "too many values to unpack (expected 5)" in pair.detail


def test_parameters_optimizer_and_step_were_compared(certified):
    result, _ = certified
    equal = [pair for pair in result.checkpoint_pairs if pair.outcome is Outcome.EQUAL]
    assert len(equal) == 7 * VARIANTS
    assert all("36 tensors and 26 values of 2 ranks are bit-equal" in pair.detail for pair in equal)


def test_the_lines_say_one_way_and_where_to_restart(certified):
    result, out_dir = certified
    lines = {line.id.rpartition("/")[2]: line for line in result.lines}
    assert {name: line.verdict for name, line in lines.items()} == {
        "own": Verdict.PASS,
        "forward": Verdict.PASS,
        "way-back": Verdict.FAIL,
        "last-known-good": Verdict.PASS,
        "duplicate": Verdict.PASS,
    }
    assert f"a rollback restarts from {out_dir / 'older'}" in lines["way-back"].detail
    assert (
        "the baseline reads 3 tensors and 1 values of 1 ranks, and the candidate the same"
        in lines["last-known-good"].detail
    )


def test_the_candidates_first_checkpoint_has_a_whole_copy(certified):
    result, out_dir = certified
    (line,) = [line for line in result.lines if line.id == "checkpoint/duplicate"]
    assert look(out_dir / line.detail.split()[0].rstrip(":")).is_whole


def test_the_difference_is_found_by_itself(certified):
    result, _ = certified
    (found,) = result.differences
    assert (found.line, found.declared) == ("checkpoint/way-back", False)


def test_every_negative_control_held(certified):
    result, _ = certified
    assert [(control.name.rpartition("/")[2], control.held) for control in result.controls] == [
        ("flipped-byte", True),
        ("missing-shard", True),
        ("cut-shard", True),
        ("unfinished", True),
        ("other-bytes", True),
    ]
    assert "has other bytes" in result.controls[-1].detail


def test_every_file_of_evidence_is_an_artifact(certified):
    result, out_dir = certified
    named = {file.path for file in result.artifacts}
    assert {path for line in result.lines for path in line.evidence} <= named
    assert all((out_dir / path).is_file() for path in named)


def test_a_cell_that_goes_on_after_its_last_restore_starts_no_job_and_says_the_same(certified, context):
    def logs():
        return sorted(path for path in context.cell_dir.rglob("job*.log"))

    before = logs()
    assert CheckpointCell(context.plan).run(context) == certified[0]
    assert logs() == before


def _drill(directory, **about):
    options = DrillOptions(variants=(PLAIN,), cwd=directory, **about)
    return PairDrill(options, work_dir=directory, out_dir=directory, interrupt=Interrupt())


@pytest.fixture(scope="module")
def troubled(tmp_path_factory):
    """Three stacks: on `old` rank 1 aborts when it restores what `new` saved, as with a broken extension; the torch of
    `broken` does not import."""
    directory = tmp_path_factory.mktemp("troubled")
    (directory / "aborting").mkdir()
    (directory / "aborting" / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if os.environ.get('RANK') == '1' and 'restore' in sys.orig_argv and '/new/' in ' '.join(sys.orig_argv):\n"
        "    os.abort()\n"
    )
    (directory / "no-torch" / "torch" / "distributed").mkdir(parents=True)
    (directory / "no-torch" / "torch" / "__init__.py").write_text("raise ImportError('undefined symbol')\n")
    stacks = [
        this_stack("old", PYTHONPATH=str(directory / "aborting")),
        this_stack("new"),
        this_stack("broken", PYTHONPATH=str(directory / "no-torch")),
    ]
    table = drill_pairs(_drill(directory), stacks)
    return {(pair.saved_by, pair.restored_by): pair for pair in table.pairs}, table.saved, directory


def test_a_rank_that_dies_in_a_restore_is_a_crash_and_one_way(troubled):
    found, _, _ = troubled
    assert (found["new", "old"].outcome, found["new", "old"].one_way) == (Outcome.CRASHED, True)
    assert found["new", "old"].detail == "a rank died of signal 6"


def test_a_stack_whose_torch_does_not_import_is_unknown_and_the_others_go_on(troubled):
    found, _, _ = troubled
    assert {found[key].outcome for key in found if "broken" in key} == {Outcome.UNKNOWN}
    assert "undefined symbol" in found["new", "broken"].detail
    assert [found[key].outcome for key in (("old", "old"), ("old", "new"), ("new", "new"))] == [Outcome.EQUAL] * 3


def test_a_restore_that_hangs_is_bounded_and_says_where_it_was(troubled):
    _, saved, directory = troubled
    (mine,) = [each for each in saved if each.stack == "new"]
    (directory / "hanging").mkdir()
    (found,) = _drill(directory / "hanging", limit_s=0.0001).restore([mine], this_stack("slow"))
    assert found.outcome is Outcome.HUNG
    assert 'a rank was in File "' in found.detail
    assert any(path.endswith(".stacks") for path in found.evidence)
