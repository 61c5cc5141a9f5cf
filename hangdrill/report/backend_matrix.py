"""The matrix of backend x fault x road as a page: who was named, whose dump arrived, and after how long.

`hangdrill report --matrix` writes it from the results alone, with the stack that it was measured on.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hangdrill.model.run import ArtifactKind, DrillResult
from hangdrill.model.scenario import FaultKind, Trigger, WorkloadName
from hangdrill.model.verdict import Verdict
from hangdrill.report.matrix import CellWord, MatrixCell, cells_of, total_text

__all__ = ["backend_page", "has_backends"]

HEAD = """# What each backend leaves of a hang, on GPUs

{count} real torchrun jobs of {world}. This page is written by

    hangdrill run scenarios/gpu --out RUNS -j 20
    hangdrill report --matrix RUNS --output docs/gpu.md

Measured on {stack}.

A field says who was named, whose dumps arrived, and after how many seconds: until the last dump over the collector's
road, until the job was over where torch is alone.

- **right**: the culprit and the verdict are the injected truth; without a fault, that no hang is reported.
- **cannot tell**: the evidence that this road brings cannot name the culprit, and hangdrill says why. With two ranks a
  mismatch cannot be outvoted, and of a kernel that does not end all ranks are inside the operation.
- **wrong**: anything else.
- **!** stands where the ranks that left a dump are not those that are known to (`hangdrill/arrival/table.py`).
"""
HISTORY = (ArtifactKind.DUMP, ArtifactKind.TRACE)
KNOWN = "arrival-as-known"
OPERATION = re.compile(r"(?<=all ranks entered )\S+ #\d+ of \S+")


class _Field(msgspec.Struct, frozen=True, kw_only=True):
    """One drill of the page."""

    cell: MatrixCell
    dumps: tuple[int, ...]
    after_s: float | None
    surprising: bool

    @property
    def text(self) -> str:
        """ "right; 0, 1; 38 s"."""
        dumps = ", ".join(str(rank) for rank in self.dumps) or "none"
        after = "" if self.after_s is None else f"; {self.after_s:.0f} s"
        return f"{self.cell.word.value}; {dumps}{after}" + (" **!**" if self.surprising else "")


def has_backends(results: Sequence[DrillResult]) -> bool:
    """Whether the results are cells of a matrix over backends."""
    cells = cells_of(results)
    return bool(cells) and len(cells) == len(results) and all(cell.backend for cell in cells)


def backend_page(results: Sequence[DrillResult]) -> str:
    """The whole page, in Markdown."""
    fields = [_field(result, cell) for result, cell in zip(results, cells_of(results), strict=True)]
    head = HEAD.format(count=len(fields), world="two ranks", stack=_stack(results))
    roads = list(dict.fromkeys(field.cell.road for field in fields))
    order = [trigger.value for trigger in Trigger]
    roads.sort(key=lambda road: next((at for at, word in enumerate(order) if road.startswith(word)), len(order)))
    parts = [head, *(_table(road, [field for field in fields if field.cell.road == road]) for road in roads)]
    total = total_text([field.cell for field in fields])
    surprises = sum(field.surprising for field in fields)
    parts.append(f"## In sum\n\n{total}; {surprises} with an arrival that is not as known.\n")
    parts.append("\n".join(f"- {reason}" for reason in _reasons(fields)) + "\n")
    return "\n".join(parts)


def _field(result: DrillResult, cell: MatrixCell) -> _Field:
    known = next((check for check in result.checks if check.name == KNOWN), None)
    return _Field(
        cell=cell,
        dumps=tuple(sorted({item.rank for item in result.artifacts if item.kind in HISTORY})),
        after_s=_after_s(result, cell.road),
        surprising=known is not None and known.verdict is Verdict.FAIL,
    )


def _after_s(result: DrillResult, road: str) -> float | None:
    """Since the fault took; None where nothing hung."""
    times = result.timings
    end_s = times.last_dump_s if road.startswith(Trigger.COLLECTOR.value) else times.ended_s
    if times.hang_s is None or end_s is None or result.expected_culprits == ():
        return None
    return max(0.0, end_s - times.hang_s)


def _table(road: str, fields: Sequence[_Field]) -> str:
    backends = sorted({field.cell.backend for field in fields}, key=lambda name: (len(name), name))
    by_place = {(_row(field.cell), field.cell.backend): field.text for field in fields}
    rows = sorted({_row(field.cell) for field in fields}, key=_order)
    lines = [["fault", *backends], ["---"] * (len(backends) + 1)]
    lines += [[_row_text(row), *(by_place.get((row, backend), "") for backend in backends)] for row in rows]
    return "\n".join([f"## `{road}`\n", *(f"| {' | '.join(line)} |" for line in lines), ""])


def _row(cell: MatrixCell) -> tuple[str, str]:
    return cell.workload, cell.kind


def _row_text(row: tuple[str, str]) -> str:
    workload, kind = row
    return kind if workload == WorkloadName.ALL_REDUCE.value else f"{workload}: {kind}"


def _order(row: tuple[str, str]) -> tuple[int, int]:
    """As the model has them, the plain all_reduce first."""
    workloads, kinds = [word.value for word in WorkloadName], [word.value for word in FaultKind]
    return workloads.index(row[0]), kinds.index(row[1])


def _reasons(fields: Iterable[_Field]) -> list[str]:
    """Why a field is not right; those with the same reason stand together."""
    found: dict[str, list[str]] = {}
    for field in fields:
        cell = field.cell
        if cell.word is not CellWord.RIGHT:
            place = f"{cell.backend}.{cell.road} {_row_text(_row(cell))}"
            why = OPERATION.sub("the same operation", cell.why)
            found.setdefault(f"{cell.word.value}: {why}", []).append(place)
    return [f"{reason} ({', '.join(places)})" for reason, places in sorted(found.items())]


def _stack(results: Sequence[DrillResult]) -> str:
    """What ran, from the agents' reports; several where the runs differ."""
    words: Mapping[str, list[str]] = {
        "torch": _seen(result.environment.torch for result in results),
        "CUDA": _seen(result.environment.cuda for result in results),
        "NCCL": _seen(result.environment.nccl_loaded for result in results),
        "Python": _seen(result.environment.python for result in results),
        "": _seen(_device(result.environment.device_binding) for result in results),
    }
    return ", ".join(f"{name} {' and '.join(values)}".strip() for name, values in words.items() if values)


def _seen(values: Iterable[str | None]) -> list[str]:
    return sorted({value for value in values if value})


def _device(binding: str | None) -> str | None:
    """The name in "cuda:0 (NVIDIA H200), explicit device_id"."""
    _, opened, rest = (binding or "").partition("(")
    return rest.partition(")")[0] if opened else None
