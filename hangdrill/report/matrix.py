"""The matrix of workload x fault x rank as one table: in each cell whether the culprit was named rightly.

A drill belongs to the matrix by its name, `[<backend>.][<road>.]<workload>-<kind>[-r<rank>]`, which the expansion of a
matrix file gives it. Matrices over backends and roads are in `hangdrill.report.backend_matrix`.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from hangdrill.checks.words import count_text, list_text, ranks_text
from hangdrill.model.run import DrillResult
from hangdrill.model.scenario import FaultKind, WorkloadName
from hangdrill.model.verdict import Verdict

__all__ = [
    "CellWord",
    "MatrixCell",
    "axes",
    "cell_text",
    "cells_of",
    "is_matrix",
    "matrix_markdown",
    "of_field",
    "remarks",
    "total_text",
]


class CellWord(Enum):
    """What one drill of the matrix came to."""

    RIGHT = "right"
    CANNOT_TELL = "cannot tell"
    WRONG = "wrong"


class MatrixCell(msgspec.Struct, frozen=True, kw_only=True):
    """One drill. rank is None for the negative control without a fault; broken names checks that failed beside it.
    backend and road are empty where the matrix has no such axes."""

    workload: str
    kind: str
    rank: int | None
    word: CellWord
    why: str = ""
    broken: tuple[str, ...] = ()
    backend: str = ""
    road: str = ""


def cells_of(results: Sequence[DrillResult]) -> tuple[MatrixCell, ...]:
    """The results that are cells of a matrix, in their order; others are left out."""
    return tuple(cell for result in results if (cell := _cell(result)) is not None)


def is_matrix(results: Sequence[DrillResult]) -> bool:
    """Whether a table of workload x fault says more than a list: all are cells, and some share a row and a column."""
    cells = cells_of(results)
    workloads, kinds = axes(cells)
    plain = not any(cell.backend or cell.road for cell in cells)
    return plain and len(cells) == len(results) and len(cells) > max(len(workloads), len(kinds))


def axes(cells: Sequence[MatrixCell]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The workloads and fault kinds there are, in the order of the model."""
    workloads, kinds = {cell.workload for cell in cells}, {cell.kind for cell in cells}
    return (
        tuple(item.value for item in WorkloadName if item.value in workloads),
        tuple(item.value for item in FaultKind if item.value in kinds),
    )


def of_field(cells: Sequence[MatrixCell], workload: str, kind: str) -> tuple[MatrixCell, ...]:
    """All ranks of one workload and fault."""
    return tuple(cell for cell in cells if (cell.workload, cell.kind) == (workload, kind))


def cell_text(field: Sequence[MatrixCell]) -> str:
    """ "right" when all ranks are, else what it is on which: "right 0, 2; wrong 1". * marks other failures."""
    star = "*" if any(cell.broken for cell in field) else ""
    words = [word for word in CellWord if any(cell.word is word for cell in field)]
    if len(words) == 1:
        return words[0].value + star
    return "; ".join(f"{word.value} {_ranks(field, word)}" for word in words) + star


def matrix_markdown(results: Sequence[DrillResult]) -> str:
    """The table for the docs: a row a fault, a column a workload; below it the counts and what is not right."""
    cells = cells_of(results)
    workloads, kinds = axes(cells)
    rows = [[kind, *(cell_text(of_field(cells, workload, kind)) for workload in workloads)] for kind in kinds]
    header = ["fault", *workloads]
    lines = [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
    out = [left_out] if (left_out := _left_out_text(results)) else []
    notes = [f"- {remark}" for remark in (*remarks(cells), *out)]
    return "\n".join([*(lines if cells else ()), "", total_text(cells) + ".", "", *notes]).lstrip("\n") + "\n"


def total_text(cells: Sequence[MatrixCell]) -> str:
    """ "301 cells: 280 right, 21 cannot tell, 0 wrong"."""
    counts = ", ".join(f"{sum(cell.word is word for cell in cells)} {word.value}" for word in CellWord)
    return f"{len(cells)} cells: {counts}"


def remarks(cells: Sequence[MatrixCell]) -> list[str]:
    """What is not right, and why; then what * stands for. Cells with the same reason stand together."""
    found: dict[str, list[MatrixCell]] = {}
    for cell in cells:
        if cell.word is not CellWord.RIGHT:
            found.setdefault(f"{cell.word.value}: {cell.why}", []).append(cell)
        if cell.broken:
            found.setdefault(f"* failed: {', '.join(cell.broken)}", []).append(cell)
    return [f"{reason} ({_places(places, cells)})" for reason, places in sorted(found.items())]


def _places(places: Sequence[MatrixCell], cells: Sequence[MatrixCell]) -> str:
    """ "pipeline: hold, stop rank 1; ddp: kill": the ranks are named where not all of the field are meant."""
    texts: dict[str, list[str]] = {}
    for workload, kind in dict.fromkeys((cell.workload, cell.kind) for cell in places):
        meant, field = of_field(places, workload, kind), of_field(cells, workload, kind)
        ranks = [cell.rank for cell in meant if cell.rank is not None]
        texts.setdefault(workload, []).append(kind if len(meant) == len(field) else f"{kind} {ranks_text(ranks)}")
    return "; ".join(f"{workload}: {', '.join(kinds)}" for workload, kinds in texts.items())


def _left_out_text(results: Sequence[DrillResult]) -> str:
    """ "left out, for their names are no cell's: 1 drill: delivery/native-gloo (FAIL)"; empty when all are cells."""
    drills = [result for result in results if _cell(result) is None]
    names = [f"{result.scenario} ({result.verdict.value.upper()})" for result in drills]
    what = count_text(len(drills), "drill")
    return f"left out, for a name that is no cell's: {what}: {list_text(names, most=20)}" if drills else ""


def _ranks(field: Sequence[MatrixCell], word: CellWord) -> str:
    return ", ".join("-" if cell.rank is None else str(cell.rank) for cell in field if cell.word is word)


def _cell(result: DrillResult) -> MatrixCell | None:
    *axes_before, name = result.scenario.rsplit("/", maxsplit=1)[-1].split(".")
    backend, road = (*axes_before, "", "")[:2]
    workload = next((item.value for item in WorkloadName if name.startswith(f"{item.value}-")), None)
    if workload is None:
        return None
    kind, rank = _kind_and_rank(name[len(workload) + 1 :])
    if kind not in {item.value for item in FaultKind}:
        return None
    culprit = next((check for check in result.checks if check.name == "culprit"), None)
    return MatrixCell(
        workload=workload,
        kind=kind,
        rank=rank,
        word=_word(culprit.verdict if culprit is not None else Verdict.UNKNOWN),
        why=culprit.detail if culprit is not None else "the drill did not get so far",
        backend=backend,
        road=road,
        broken=tuple(item.name for item in result.checks if item.verdict is Verdict.FAIL and item.name != "culprit"),
    )


def _kind_and_rank(text: str) -> tuple[str, int | None]:
    """ "hold-r2" is hold on rank 2; "wrong-op" has no rank."""
    kind, separator, rank = text.rpartition("-r")
    return (kind, int(rank)) if separator and rank.isdigit() else (text, None)


def _word(verdict: Verdict) -> CellWord:
    return {Verdict.PASS: CellWord.RIGHT, Verdict.FAIL: CellWord.WRONG, Verdict.UNKNOWN: CellWord.CANNOT_TELL}[verdict]
