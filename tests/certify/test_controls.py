"""The negative control: a drill whose recorder is switched off must fail, by the check that looks into the dumps."""

import os
import sys
from pathlib import Path

import msgspec
import pytest

from hangdrill.certify.cells import CellContext
from hangdrill.certify.controls import RecorderOff, control_cells
from hangdrill.certify.stacks import CANDIDATE, Stack
from hangdrill.drill.waiting import Interrupt
from hangdrill.model.certify_plan import CertifyPlan, StackPlan, WorkPlan
from hangdrill.model.receipt import Control
from hangdrill.model.scenario import Recorder, Scenario
from hangdrill.model.verdict import Verdict
from hangdrill.report.progress import NoopListener

SIDE = StackPlan(python=sys.executable)


class RecorderOn(RecorderOff, frozen=True, kw_only=True):
    """The same drill with nothing broken: what the control must not take for a broken recorder."""

    def _scenario(self) -> Scenario:
        return msgspec.structs.replace(super()._scenario(), recorder=Recorder())


def run(cell: RecorderOff, tmp_path: Path) -> tuple[Control, Verdict]:
    directory = tmp_path / "cells" / cell.id
    directory.mkdir(parents=True)
    with Interrupt() as interrupt:
        context = CellContext(
            plan=CertifyPlan(title="t", baseline=SIDE, candidate=SIDE),
            stacks={CANDIDATE: Stack(name=CANDIDATE, python=sys.executable)},
            out_dir=tmp_path,
            cell_dir=directory,
            environ=os.environ,
            interrupt=interrupt,
            listener=NoopListener(),
        )
        result = cell.run(context)
    (control,), (line,) = result.controls, result.lines
    assert all((tmp_path / path).is_file() for path in control.evidence)
    return control, line.verdict


def test_it_needs_gpus_only_where_the_backend_does() -> None:
    for backend, gpus in (("gloo", 0), ("nccl", 2), ("cpu:gloo,cuda:nccl", 2)):
        plan = CertifyPlan(title="t", baseline=SIDE, candidate=SIDE, workload=WorkPlan(backend=backend))
        (cell,) = control_cells(plan)
        assert cell.needs.gpus == gpus
        assert cell.needs.stacks == (CANDIDATE,)


@pytest.mark.torchrun
def test_with_the_recorder_switched_off_the_control_holds(tmp_path: Path) -> None:
    control, line = run(RecorderOff(backend="gloo", timeout_s=5), tmp_path)
    assert (control.got, control.held, line) == (Verdict.FAIL, True, Verdict.PASS), control.detail


@pytest.mark.torchrun
def test_with_the_recorder_on_it_does_not_hold(tmp_path: Path) -> None:
    control, line = run(RecorderOn(backend="gloo", timeout_s=5), tmp_path)
    assert (control.got, control.held, line) == (Verdict.PASS, False, Verdict.UNKNOWN), control.detail
