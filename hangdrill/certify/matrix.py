"""The cells of a plan, in the order in which they run. Each part of the certification adds its own here."""

from collections.abc import Callable, Sequence

from hangdrill.certify.binding import binding_cells
from hangdrill.certify.canary import canary_cells
from hangdrill.certify.cells import Cell
from hangdrill.certify.checkpoints import checkpoint_cells
from hangdrill.certify.controls import control_cells
from hangdrill.certify.drills import drill_cells
from hangdrill.certify.nodes_drill import node_drill_cells
from hangdrill.certify.rollback import rollback_cells
from hangdrill.certify.script_cells import script_cells
from hangdrill.model.certify_plan import CertifyPlan
from hangdrill.model.errors import InternalError

__all__ = ["SOURCES", "cells_of"]

SOURCES: tuple[Callable[[CertifyPlan], Sequence[Cell]], ...] = (
    control_cells,
    binding_cells,
    canary_cells,
    drill_cells,
    node_drill_cells,
    script_cells,
    checkpoint_cells,
    rollback_cells,
)
"""Each gives its cells of a plan, without running anything."""


def cells_of(plan: CertifyPlan) -> tuple[Cell, ...]:
    """All cells of the plan. InternalError when two have one id, or a claim is not below its cell's id."""
    cells = tuple(cell for source in SOURCES for cell in source(plan))
    ids = [cell.id for cell in cells]
    promised = [claim.id for cell in cells for claim in cell.claims]
    for names in (ids, promised):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InternalError(f"two cells or claims are called {twice[0]}")
    for cell in cells:
        for claim in cell.claims:
            if not claim.id.startswith(f"{cell.id}/"):
                raise InternalError(f"claim {claim.id} of cell {cell.id} must begin with {cell.id}/")
    return cells
