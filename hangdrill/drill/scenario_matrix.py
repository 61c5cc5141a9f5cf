"""Expand a matrix file into its cells: one table a cell, in the order workload, kind, rank.

The layers of a cell are the file's own tables, its workload's, its kind's, then every `[[cell]]` that matches; a later
layer wins key by key. Two words stand for what differs by cell: culprits = "injected" and dumps = "others".
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hangdrill.drill.scenario_shape import Problem
from hangdrill.model.matrix import Cell, Layer, Matrix
from hangdrill.model.scenario import FaultKind, WorkloadName

__all__ = ["CellTable", "expand", "is_matrix"]

TABLES = ("job", "fault", "recorder", "expect")
ONE_OF = (("fault", "before", "at"), ("expect", "culprit", "culprits"))
"""Keys of which a scenario has one: a layer that sets one of them takes the others of the layers before away."""
AXIS_KEYS = (("job", "workload"), ("job", "script"), ("fault", "kind"), ("fault", "rank"), ("fault", "ranks"))
DEFAULT_WORLD = 2

Tables = dict[str, dict[str, Any]]


class CellTable(NamedTuple):
    """One cell: its short name ("ddp-hold-r1") and the tables of a plain scenario."""

    name: str
    tables: dict[str, Any]


def is_matrix(data: Mapping[str, Any]) -> bool:
    """Whether the tables of a TOML file are a matrix rather than one scenario."""
    return "matrix" in data


def expand(matrix: Matrix) -> tuple[list[CellTable], list[Problem]]:
    """All cells, or what is wrong with the layers."""
    problems = list(_layer_problems(matrix))
    return ([] if problems else list(_cells(matrix))), problems


def _cells(matrix: Matrix) -> Iterator[CellTable]:
    for workload in matrix.matrix.workloads:
        for kind in matrix.matrix.kinds:
            if kind is FaultKind.NONE:
                yield _cell(matrix, workload, kind, None)
                continue
            yield from (_cell(matrix, workload, kind, rank) for rank in _ranks(matrix, workload, kind))


def _ranks(matrix: Matrix, workload: WorkloadName, kind: FaultKind) -> tuple[int, ...]:
    ranks = matrix.matrix.ranks
    if not isinstance(ranks, str):
        return ranks
    world = _world(_merged(matrix, workload, kind, None))
    return tuple(sorted({0, world // 2, world - 1}))


def _cell(matrix: Matrix, workload: WorkloadName, kind: FaultKind, rank: int | None) -> CellTable:
    tables = _merged(matrix, workload, kind, rank)
    tables["job"]["workload"] = workload.value
    tables["fault"]["kind"] = kind.value
    if rank is None:
        tables["fault"] = {"kind": kind.value}
    else:
        tables["fault"]["rank"] = rank
    _fill_in(tables, rank)
    title = matrix.matrix.title.format(workload=workload.value, kind=kind.value, rank="-" if rank is None else rank)
    suffix = "" if rank is None else f"-r{rank}"
    return CellTable(f"{workload.value}-{kind.value}{suffix}", {"title": title, **tables})


def _fill_in(tables: Tables, rank: int | None) -> None:
    """Put the cell's own ranks in place of the words that stand for them."""
    expect = tables["expect"]
    if expect.get("culprits") == "injected":
        expect["culprits"] = [] if rank is None else [rank]
    if expect.get("dumps") == "others":
        expect["dumps"] = [other for other in range(_world(tables)) if other != rank]


def _merged(matrix: Matrix, workload: WorkloadName, kind: FaultKind, rank: int | None) -> Tables:
    layers: list[Layer] = [matrix]
    layers += [matrix.workload[workload]] if workload in matrix.workload else []
    layers += [matrix.kind[kind]] if kind in matrix.kind else []
    layers += [cell for cell in matrix.cell if _matches(cell, workload, kind, rank)]
    tables: Tables = {name: {} for name in TABLES}
    for layer in layers:
        for name in TABLES:
            tables[name] = _over(tables[name], getattr(layer, name), name)
    return tables


def _over(below: dict[str, Any], above: Mapping[str, Any], table: str) -> dict[str, Any]:
    """One table over another; tables inside (before, env) are merged in turn."""
    result = dict(below)
    for one_of in ONE_OF:
        if one_of[0] == table and any(key in above for key in one_of[1:]):
            result = {key: value for key, value in result.items() if key not in one_of[1:] or key in above}
    for key, value in above.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, Mapping)
        result[key] = {**old, **value} if both else value  # type: ignore[dict-item]  # `both` says that old is a dict
    return result


def _matches(cell: Cell, workload: WorkloadName, kind: FaultKind, rank: int | None) -> bool:
    return (
        (not cell.workloads or workload in cell.workloads)
        and (not cell.kinds or kind in cell.kinds)
        and (not cell.ranks or rank in cell.ranks)
    )


def _world(tables: Tables) -> int:
    number = tables["job"].get("nproc_per_node", DEFAULT_WORLD)
    return number if isinstance(number, int) else DEFAULT_WORLD


def _layer_problems(matrix: Matrix) -> Iterator[Problem]:
    axes = matrix.matrix
    for axis in ("workloads", "kinds"):
        values = getattr(axes, axis)
        if not values or len(set(values)) != len(values):
            yield Problem(f"matrix.{axis}", "the axis is empty or names a value twice", "name each value once")
    try:
        axes.title.format(workload="", kind="", rank="")
    except (KeyError, IndexError, ValueError) as error:
        yield Problem("matrix.title", f"unknown placeholder {error}", "use {workload}, {kind} and {rank}")
    for key, layer in _layers(matrix):
        for table, name in AXIS_KEYS:
            if name in getattr(layer, table):
                yield Problem(f"{key}{table}.{name}", "the axes of the matrix set this", "leave it out")
    for unused in (set(matrix.workload) - set(axes.workloads)) | (set(matrix.kind) - set(axes.kinds)):
        table = "kind" if isinstance(unused, FaultKind) else "workload"
        yield Problem(f"{table}.{unused.value}", "no cell uses this table", f"add it to matrix.{table}s")


def _layers(matrix: Matrix) -> Iterator[tuple[str, Layer]]:
    yield "", matrix
    yield from ((f"workload.{name.value}.", layer) for name, layer in matrix.workload.items())
    yield from ((f"kind.{name.value}.", layer) for name, layer in matrix.kind.items())
    yield from (("cell.", cell) for cell in matrix.cell)
