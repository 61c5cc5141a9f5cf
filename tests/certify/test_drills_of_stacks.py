"""A drill says something of a stack only when every rank of it had the torch of the stack's fingerprint."""

import subprocess
from pathlib import Path

import msgspec
import pytest
from canary_cases import canary_run, rank_record
from certify_contexts import context_of
from checkpoint_cases import stack_of

from hangdrill.certify.binding import BindingCell
from hangdrill.certify.canary_runs import run_of_stack
from hangdrill.certify.checkpoints import CheckpointCell
from hangdrill.certify.controls import control_cells
from hangdrill.certify.drills import AloneCell, DrillCell, require_own_torch
from hangdrill.certify.rollback import RollbackCell
from hangdrill.certify.rollback_none import NothingReplacedCell
from hangdrill.certify.running import run_cell
from hangdrill.certify.stacks import Stack
from hangdrill.drill.layout import RunLayout
from hangdrill.model.certify_plan import Topology
from hangdrill.model.errors import MachineError
from hangdrill.model.fingerprint import Fingerprint
from hangdrill.model.run import AgentFacts
from hangdrill.model.verdict import Verdict

OWN, OTHER = "2.15.0+cu132", "2.14.1+cu130"
CANDIDATE = Stack(name="candidate", python="/b/bin/python", fingerprint=Fingerprint(python="3.12.0", torch=OWN))


def recorded(directory: Path, torch_of: dict[int, str]) -> Path:
    """A run directory that holds what each rank said of itself."""
    control = RunLayout(directory).control
    control.mkdir(parents=True)
    for rank, torch in torch_of.items():
        facts = AgentFacts(rank=rank, pid=100 + rank, host="node-b", torch=torch)
        (control / f"rank_{rank}.a0.facts.json").write_bytes(msgspec.json.encode(facts))
    return directory


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_of_a_drill_with_another_torch_is_not_of_the_stack(tmp_path, rank):
    run_dir = recorded(tmp_path, {one: OTHER if one == rank else OWN for one in range(3)})
    with pytest.raises(MachineError, match=rf"rank {rank} on node-b had torch 2.14.1\+cu130, and the candidate is 2."):
        require_own_torch(run_dir, CANDIDATE)


@pytest.mark.parametrize("torch", [OWN, ""])
def test_a_rank_with_the_stacks_torch_or_that_never_said_is_left_to_the_checks(tmp_path, torch):
    require_own_torch(recorded(tmp_path, {0: OWN, 1: torch}), CANDIDATE)


def test_a_drill_and_a_measurement_say_it_in_the_same_words(tmp_path):
    measured = canary_run(rank_record(0, ranks=1, facts={"torch": OTHER}), ranks=1)
    with pytest.raises(MachineError) as of_a_measurement:
        run_of_stack(measured, CANDIDATE)
    with pytest.raises(MachineError) as of_a_drill:
        require_own_torch(recorded(tmp_path, {0: OTHER}), CANDIDATE)
    measured_words = of_a_measurement.value.what.replace("on h had", "on node-b had")
    assert (measured_words, of_a_measurement.value.next_step) == (of_a_drill.value.what, of_a_drill.value.next_step)


@pytest.mark.torchrun
@pytest.mark.parametrize("another", [True, False], ids=["another torch", "its own torch"])
def test_a_pythonpath_of_the_plan_that_brings_another_torch_makes_the_drill_unknown(tmp_path, another):
    python, other = stack_of("2.15.0"), Path(stack_of("2.14.1")).parents[1]
    torch = subprocess.run(
        [python, "-c", "import torch; print(torch.__version__)"], check=True, capture_output=True, text=True
    ).stdout.strip()
    (packages,) = other.glob("lib/python*/site-packages")
    context = context_of(tmp_path, torch=torch, env={"PYTHONPATH": str(packages)} if another else {})
    stacks = {name: msgspec.structs.replace(stack, python=python) for name, stack in context.stacks.items()}
    result = run_cell(DrillCell(context.plan, Topology.SINGLE_NODE), msgspec.structs.replace(context, stacks=stacks))
    (line,) = result.lines
    assert line.verdict is (Verdict.UNKNOWN if another else Verdict.PASS), line.detail
    assert ("had torch 2.14.1" in line.detail) is another
    assert ("let no variable of the plan name another torch" in line.mend) is another


@pytest.mark.torchrun
@pytest.mark.parametrize(
    "cell_of",
    [AloneCell, BindingCell, NothingReplacedCell, RollbackCell, CheckpointCell, lambda plan: control_cells(plan)[0]],
    ids=["alone", "binding", "rollback-none", "rollback", "checkpoint", "control"],
)
def test_no_cell_takes_real_ranks_with_another_torch_for_the_stack(tmp_path, cell_of):
    context = context_of(tmp_path, torch="2.15.0+of.another.build")
    result = run_cell(cell_of(context.plan), context)
    assert "and the " in result.why_not, [line.detail for line in result.lines]
    assert "is 2.15.0+of.another.build" in result.why_not
    assert {line.verdict for line in result.lines} == {Verdict.UNKNOWN}
