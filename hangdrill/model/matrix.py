"""A matrix file: one TOML file that stands for many scenarios, workload x fault kind x rank.

It is data only; `hangdrill.drill.scenario_matrix` expands it. The keys are documented in docs/reference/scenario.md.
"""

from typing import Any, Literal

import msgspec

from hangdrill.model.scenario import FaultKind, WorkloadName

__all__ = ["Cell", "Layer", "Matrix", "MatrixAxes"]

Table = dict[str, Any]


class MatrixAxes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The axes. title may use {workload}, {kind} and {rank}; kind `none` has no rank and makes one cell a workload."""

    title: str
    workloads: tuple[WorkloadName, ...]
    kinds: tuple[FaultKind, ...]
    ranks: Literal["first-middle-last"] | tuple[int, ...] = "first-middle-last"


class Layer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tables of a scenario that are laid over those of the layer before, key by key."""

    job: Table = msgspec.field(default_factory=dict)
    fault: Table = msgspec.field(default_factory=dict)
    recorder: Table = msgspec.field(default_factory=dict)
    expect: Table = msgspec.field(default_factory=dict)


class Cell(Layer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last layer: of the cells that it names. An axis that is left out means all of it."""

    workloads: tuple[WorkloadName, ...] = ()
    kinds: tuple[FaultKind, ...] = ()
    ranks: tuple[int, ...] = ()


class Matrix(Layer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file: its own tables are the first layer, then workload, kind, and every cell that matches."""

    matrix: MatrixAxes
    workload: dict[WorkloadName, Layer] = msgspec.field(default_factory=dict)
    kind: dict[FaultKind, Layer] = msgspec.field(default_factory=dict)
    cell: tuple[Cell, ...] = ()
