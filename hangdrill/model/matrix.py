"""A matrix file: one TOML file that stands for many scenarios, workload x fault kind x rank, x backend x road.

It is data only; `hangdrill.drill.scenario_matrix` expands it. The keys are documented in docs/reference/scenario.md.
"""

from typing import Any, Literal

import msgspec

from hangdrill.model.scenario import FaultKind, WorkloadName

__all__ = ["Cell", "Layer", "Matrix", "MatrixAxes", "Where"]

Table = dict[str, Any]


class MatrixAxes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The axes. title may use {workload}, {kind}, {rank}, {backend} and {road}; kind `none` has no rank.

    A backend is a name torch knows or a label of `[backend.LABEL]`; a road is a trigger or a label of `[road.LABEL]`.
    Without these two axes a cell's name does not speak of them.
    """

    title: str
    workloads: tuple[WorkloadName, ...]
    kinds: tuple[FaultKind, ...]
    ranks: Literal["first-middle-last"] | tuple[int, ...] = "first-middle-last"
    backends: tuple[str, ...] = ()
    roads: tuple[str, ...] = ()


class Layer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tables of a scenario that are laid over those of the layer before, key by key."""

    job: Table = msgspec.field(default_factory=dict)
    fault: Table = msgspec.field(default_factory=dict)
    recorder: Table = msgspec.field(default_factory=dict)
    expect: Table = msgspec.field(default_factory=dict)


class Where(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some of the cells. An axis that is left out means all of it."""

    workloads: tuple[WorkloadName, ...] = ()
    kinds: tuple[FaultKind, ...] = ()
    ranks: tuple[int, ...] = ()
    backends: tuple[str, ...] = ()
    roads: tuple[str, ...] = ()


class Cell(Layer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last layer: of the cells that it names, as `Where` does."""

    workloads: tuple[WorkloadName, ...] = ()
    kinds: tuple[FaultKind, ...] = ()
    ranks: tuple[int, ...] = ()
    backends: tuple[str, ...] = ()
    roads: tuple[str, ...] = ()


class Matrix(Layer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file: its own tables are the first layer, then backend, road, workload, kind, and every cell that
    matches. `[[leave_out]]` takes cells out."""

    matrix: MatrixAxes
    backend: dict[str, Layer] = msgspec.field(default_factory=dict)
    road: dict[str, Layer] = msgspec.field(default_factory=dict)
    workload: dict[WorkloadName, Layer] = msgspec.field(default_factory=dict)
    kind: dict[FaultKind, Layer] = msgspec.field(default_factory=dict)
    cell: tuple[Cell, ...] = ()
    leave_out: tuple[Where, ...] = ()
