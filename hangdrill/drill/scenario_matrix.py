"""Expand a matrix file into its cells: one table a cell, in the order backend, road, workload, kind, rank.

The layers of a cell are the file's own tables, those of its backend, road, workload and kind, then every `[[cell]]`
that matches; a later layer wins key by key. Two words stand for what differs by cell: culprits = "injected" and
dumps = "others".
"""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from hangdrill.drill.scenario_shape import Problem
from hangdrill.model.matrix import Cell, Layer, Matrix, Where
from hangdrill.model.scenario import FaultKind, WorkloadName

__all__ = ["CellTable", "expand", "is_matrix"]

TABLES = ("job", "fault", "recorder", "expect")
ONE_OF = (("fault", "before", "at"), ("expect", "culprit", "culprits"))
"""Keys of which a scenario has one: a layer that sets one of them takes the others of the layers before away."""
AXIS_KEYS = (("job", "workload"), ("job", "script"), ("fault", "kind"), ("fault", "rank"), ("fault", "ranks"))
DEFAULT_WORLD = 2
LABEL = re.compile(r"[a-z0-9][a-z0-9-]*")

Tables = dict[str, dict[str, Any]]


class _Place(NamedTuple):
    """A cell by its axes, in the order in which they run."""

    backend: str | None
    road: str | None
    workload: WorkloadName
    kind: FaultKind
    rank: int | None


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
    axes = matrix.matrix
    for backend, road, workload, kind in product(
        axes.backends or (None,), axes.roads or (None,), axes.workloads, axes.kinds
    ):
        at = _Place(backend, road, workload, kind, None)
        places = [at] if kind is FaultKind.NONE else [at._replace(rank=rank) for rank in _ranks(matrix, at)]
        yield from (_cell(matrix, place) for place in places if not any(_fits(out, place) for out in matrix.leave_out))


def _ranks(matrix: Matrix, place: _Place) -> tuple[int, ...]:
    ranks = matrix.matrix.ranks
    if not isinstance(ranks, str):
        return ranks
    world = _world(_merged(matrix, place))
    return tuple(sorted({0, world // 2, world - 1}))


def _cell(matrix: Matrix, place: _Place) -> CellTable:
    tables = _merged(matrix, place)
    workload, kind, rank = place.workload.value, place.kind.value, place.rank
    tables["job"]["workload"] = workload
    if place.backend is not None:
        tables["job"].setdefault("backend", place.backend)
    if place.road is not None:
        tables["recorder"].setdefault("trigger", place.road)
    tables["fault"]["kind"] = kind
    if rank is None:
        tables["fault"] = {"kind": kind}
    else:
        tables["fault"]["rank"] = rank
    _fill_in(tables, rank)
    rank_text = "-" if rank is None else rank
    title = matrix.matrix.title.format(
        workload=workload, kind=kind, rank=rank_text, backend=place.backend, road=place.road
    )
    name = f"{workload}-{kind}" + ("" if rank is None else f"-r{rank}")
    return CellTable(".".join([*filter(None, (place.backend, place.road)), name]), {"title": title, **tables})


def _fill_in(tables: Tables, rank: int | None) -> None:
    """Put the cell's own ranks in place of the words that stand for them."""
    expect = tables["expect"]
    if expect.get("culprits") == "injected":
        expect["culprits"] = [] if rank is None else [rank]
    if expect.get("dumps") == "others":
        expect["dumps"] = [other for other in range(_world(tables)) if other != rank]


def _merged(matrix: Matrix, place: _Place) -> Tables:
    layers: list[Layer | None] = [
        matrix,
        matrix.backend.get(place.backend or ""),
        matrix.road.get(place.road or ""),
        matrix.workload.get(place.workload),
        matrix.kind.get(place.kind),
        *(cell for cell in matrix.cell if _fits(cell, place)),
    ]
    tables: Tables = {name: {} for name in TABLES}
    for layer in layers:
        for name in TABLES if layer is not None else ():
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


def _fits(where: Where | Cell, place: _Place) -> bool:
    wanted = (where.backends, where.roads, where.workloads, where.kinds, where.ranks)
    return all(not words or word in words for words, word in zip(wanted, place, strict=True))


def _world(tables: Tables) -> int:
    number = tables["job"].get("nproc_per_node", DEFAULT_WORLD)
    return number if isinstance(number, int) else DEFAULT_WORLD


def _layer_problems(matrix: Matrix) -> Iterator[Problem]:
    axes = matrix.matrix
    for axis in ("workloads", "kinds", "backends", "roads"):
        values = getattr(axes, axis)
        if (not values and axis in ("workloads", "kinds")) or len(set(values)) != len(values):
            yield Problem(f"matrix.{axis}", "the axis is empty or names a value twice", "name each value once")
        if bad := [value for value in values if isinstance(value, str) and not LABEL.fullmatch(value)]:
            what = f'"{bad[0]}" cannot be part of a name'
            yield Problem(f"matrix.{axis}", what, f"choose a label, and say in [{axis[:-1]}.LABEL] what it stands for")
    try:
        axes.title.format(workload="", kind="", rank="", backend="", road="")
    except (KeyError, IndexError, ValueError) as error:
        yield Problem(
            "matrix.title", f"unknown placeholder {error}", "use {workload}, {kind}, {rank}, {backend} and {road}"
        )
    for key, layer in _layers(matrix):
        for table, name in AXIS_KEYS:
            if name in getattr(layer, table):
                yield Problem(f"{key}{table}.{name}", "the axes of the matrix set this", "leave it out")
    for table in ("workload", "kind", "backend", "road"):
        for unused in set(getattr(matrix, table)) - set(getattr(axes, f"{table}s")):
            yield Problem(f"{table}.{_text(unused)}", "no cell uses this table", f"add it to matrix.{table}s")


def _layers(matrix: Matrix) -> Iterator[tuple[str, Layer]]:
    yield "", matrix
    for table in ("backend", "road", "workload", "kind"):
        yield from ((f"{table}.{_text(name)}.", layer) for name, layer in getattr(matrix, table).items())
    yield from (("cell.", cell) for cell in matrix.cell)


def _text(name: str | WorkloadName | FaultKind) -> str:
    return name if isinstance(name, str) else name.value
