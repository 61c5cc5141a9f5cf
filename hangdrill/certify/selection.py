"""Which cells `--only` means, and the plan of a dry run: the matrix, and how long it will take."""

import fnmatch
import shutil
from collections.abc import Iterable, Mapping, Sequence

from hangdrill.certify.canary_others import VARIANTS, VariantCell, variant_parts
from hangdrill.certify.cells import Cell
from hangdrill.certify.measures import parts_of
from hangdrill.certify.stacks import BASELINE, CANDIDATE
from hangdrill.drill.scenario_shape import nearest
from hangdrill.launchers.engine import Engine
from hangdrill.model.certification import DryCell, DryRun
from hangdrill.model.certify_plan import CertifyPlan, StackPlan
from hangdrill.model.errors import MachineError, UsageError

__all__ = ["chosen", "dry_run"]

FINGERPRINT_S = 5.0
"""Importing torch once; every stack is read before the first cell, and again after the last."""
CANARY = "canary/stacks"
RESTART_S = 3.0
"""Of a canary job without GPUs: its last rank is killed, and torchrun starts the ranks again."""


def chosen(cells: Sequence[Cell], only: Iterable[str]) -> tuple[Cell, ...]:
    """The cells that one of the patterns fits: "drills/*", or the beginning of an id, "canary". None given: all."""
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
    """What these cells would do. Starts nothing; only whether each Python, or image, is there is looked at."""
    stacks: dict[str, StackPlan] = {BASELINE: plan.baseline, CANDIDATE: plan.candidate}
    stacks |= {stack.name: stack for stack in plan.checkpoint.stack}
    pythons = {name: f"{one.python} in {one.image}" if one.image else one.python for name, one in stacks.items()}
    path = environ.get("PATH")
    absent = {name: why for name, one in stacks.items() if (why := _absent(name, one, environ))}
    found = tuple(_dry(cell, plan, absent, path) for cell in cells)
    total_s = sum(cell.estimate_s for cell in found if not cell.blocked)
    total_s += 2 * FINGERPRINT_S * (len(pythons) - len(absent))
    return DryRun(title=plan.title, stacks=pythons, cells=found, estimate_s=total_s)


def _absent(name: str, stack: StackPlan, environ: Mapping[str, str]) -> str:
    """Why no job can run on it, as far as can be seen; empty when one may."""
    if not stack.image:
        return f"there is no Python for {name}" if shutil.which(stack.python, path=environ.get("PATH")) is None else ""
    try:
        found = Engine(environ).image(stack.image)
    except MachineError as error:
        return f"{name} is an image, and {error.what}"
    return f"there is no image for {name}: docker pull {stack.image}" if found is None else ""


def _dry(cell: Cell, plan: CertifyPlan, absent: Mapping[str, str], path: str | None) -> DryCell:
    missing = [absent[name] for name in cell.needs.stacks if name in absent]
    missing += [f"there is no {program}" for program in cell.needs.programs if shutil.which(program, path=path) is None]
    return DryCell(
        id=cell.id,
        topology=cell.topology,
        title=cell.title,
        stacks=cell.needs.stacks,
        gpus=cell.needs.gpus,
        estimate_s=_estimate_s(cell, plan),
        lines=len(cell.claims),
        blocked=missing[0] if missing else "",
    )


def _estimate_s(cell: Cell, plan: CertifyPlan) -> float:
    """The cell's own estimate, less what the plan's `measures` spare its jobs."""
    if cell.id != CANARY:
        return cell.estimate_s
    parts = set(parts_of(plan))
    if "nccl" in plan.workload.backend:
        short = VariantCell(plan, VARIANTS[0]).estimate_s
        return short if parts == set(variant_parts(plan)) else cell.estimate_s
    return cell.estimate_s - (0.0 if "recover" in parts else 2 * plan.workload.pairs * RESTART_S)
