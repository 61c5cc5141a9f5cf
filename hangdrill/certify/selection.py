"""Which cells `--only` means, and the plan of a dry run: the matrix, and how long it will take."""

import fnmatch
import shutil
from collections.abc import Iterable, Mapping, Sequence

from hangdrill.certify.cells import Cell
from hangdrill.certify.stacks import BASELINE, CANDIDATE
from hangdrill.drill.scenario_shape import nearest
from hangdrill.model.certification import DryCell, DryRun
from hangdrill.model.certify_plan import CertifyPlan
from hangdrill.model.errors import UsageError

__all__ = ["chosen", "dry_run"]

FINGERPRINT_S = 5.0
"""Importing torch once."""


def chosen(cells: Sequence[Cell], only: Iterable[str]) -> tuple[Cell, ...]:
    """The cells that one of the patterns fits: "canary/dp/*", or the beginning of an id, "canary". None given: all."""
    patterns = [pattern.strip("/") for pattern in only]
    for pattern in patterns:
        if not any(_fits(cell.id, pattern) for cell in cells):
            known = [cell.id for cell in cells]
            what = "this plan has no cell" if not known else nearest(pattern, known)
            raise UsageError("no cell of this plan fits", where=f"--only {pattern}", next_step=what)
    return tuple(cell for cell in cells if not patterns or any(_fits(cell.id, pattern) for pattern in patterns))


def _fits(cell_id: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(cell_id, pattern) or cell_id.startswith(f"{pattern}/")


def dry_run(plan: CertifyPlan, cells: Sequence[Cell], environ: Mapping[str, str]) -> DryRun:
    """Starts nothing; only whether each Python is there is looked at."""
    pythons = {
        BASELINE: plan.baseline.python,
        CANDIDATE: plan.candidate.python,
        **{stack.name: stack.python for stack in plan.checkpoint.stack},
    }
    path = environ.get("PATH")
    absent = {name for name, python in pythons.items() if shutil.which(python, path=path) is None}
    found = tuple(_dry(cell, absent, path) for cell in cells)
    total_s = sum(cell.estimate_s for cell in found if not cell.blocked) + FINGERPRINT_S * (len(pythons) - len(absent))
    return DryRun(title=plan.title, stacks=pythons, cells=found, estimate_s=total_s)


def _dry(cell: Cell, absent: set[str], path: str | None) -> DryCell:
    missing = [f"there is no Python for {name}" for name in cell.needs.stacks if name in absent]
    missing += [f"there is no {program}" for program in cell.needs.programs if shutil.which(program, path=path) is None]
    return DryCell(
        id=cell.id,
        topology=cell.topology,
        title=cell.title,
        stacks=cell.needs.stacks,
        gpus=cell.needs.gpus,
        estimate_s=cell.estimate_s,
        lines=len(cell.claims),
        blocked=missing[0] if missing else "",
    )
