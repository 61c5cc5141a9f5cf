"""The context of a cell, for tests: both stacks are the Python that runs them."""

import os
import sys
from pathlib import Path

import psutil

from hangdrill.certify.cells import CellContext
from hangdrill.certify.stacks import Stack
from hangdrill.drill.procfs import RUN_ID_VARIABLE
from hangdrill.drill.waiting import Interrupt
from hangdrill.model.certify_plan import CertifyPlan, RollbackPlan, StackPlan, Topology, WorkPlan
from hangdrill.model.fingerprint import Fingerprint, Gpu
from hangdrill.report.progress import NoopListener


def context_of(
    directory: Path,
    *,
    backend: str = "gloo",
    script: Path | None = None,
    torch: str = "",
    gpus: int = 0,
    topologies: tuple[Topology, ...] = (Topology.SINGLE_NODE,),
    **work,
) -> CellContext:
    """Cells write to directory/work. torch, gpus: as the stacks' fingerprints say; without torch they have none."""
    fingerprint = None
    if torch:
        found = tuple(Gpu(index=index, name="H200") for index in range(gpus))
        fingerprint = Fingerprint(python="3.12.0", torch=torch, gpus=found)
    plan = CertifyPlan(
        title="test",
        baseline=StackPlan(python=sys.executable),
        candidate=StackPlan(python=sys.executable),
        topologies=topologies,
        workload=WorkPlan(backend=backend, script=str(script) if script else None, timeout_s=5.0, steps=3, **work),
        rollback=RollbackPlan(owner="o", where="w", verify="v", expires="2099-01-01"),
    )
    cell_dir = directory / "work"
    cell_dir.mkdir(parents=True, exist_ok=True)
    return CellContext(
        plan=plan,
        stacks={
            name: Stack(name=name, python=sys.executable, fingerprint=fingerprint) for name in ("baseline", "candidate")
        },
        out_dir=directory,
        cell_dir=cell_dir,
        environ=dict(os.environ),
        interrupt=Interrupt(),
        listener=NoopListener(),
    )


def left_over(directory: Path) -> list[str]:
    """Processes of jobs in this directory that still live, found by another eye than hangdrill's."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(RUN_ID_VARIABLE) and str(directory) in " ".join(process.cmdline()):
                found.append(process.name())
        except (psutil.Error, OSError):
            continue
    return found
