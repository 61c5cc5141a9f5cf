"""The tables of the checklist below its lines: differences, checkpoint pairs, roads back, controls, work, cells."""

from collections.abc import Iterator

from hangdrill.model.receipt import CheckpointPair, Receipt
from hangdrill.report.checklist.values import Grid

__all__ = ["grids_of"]

NONE = "-"


def grids_of(receipt: Receipt) -> Iterator[Grid]:
    """Those that have a row."""
    for grid in (
        _unresolved(receipt),
        *_pairs(receipt),
        _rollback(receipt),
        *_roads(receipt),
        _controls(receipt),
        _work(receipt),
        _cells(receipt),
        _differences(receipt),
    ):
        if grid.rows:
            yield grid


def _unresolved(receipt: Receipt) -> Grid:
    rows = tuple((one.what, one.next_step or NONE) for one in receipt.unresolved)
    return Grid(title="Unresolved", heads=("what", "next step"), rows=rows)


def _differences(receipt: Receipt) -> Grid:
    rows = tuple(
        (one.what, one.baseline or "none", one.candidate or "none", "yes" if one.declared else "NO")
        for one in receipt.differences
    )
    return Grid(title="Differences", heads=("what", "baseline", "candidate", "declared"), rows=rows)


def _pairs(receipt: Receipt) -> Iterator[Grid]:
    """One table for each way of saving: rows are who saved, columns who restored."""
    pairs, torch = receipt.checkpoint_pairs, _torch_of(receipt)
    for layout, mode in dict.fromkeys((pair.layout, pair.mode) for pair in pairs):
        mine = [pair for pair in pairs if (pair.layout, pair.mode) == (layout, mode)]
        restorers = list(dict.fromkeys(pair.restored_by for pair in mine))
        found = {(pair.saved_by, pair.restored_by): pair for pair in mine}
        rows = tuple(
            (torch.get(saver, saver), *(_outcome(found.get((saver, restorer))) for restorer in restorers))
            for saver in dict.fromkeys(pair.saved_by for pair in mine)
        )
        yield Grid(
            title=f"Checkpoints, {layout}, {mode}",
            heads=("saved by", *(f"read by {torch.get(name, name)}" for name in restorers)),
            rows=rows,
        )


def _torch_of(receipt: Receipt) -> dict[str, str]:
    """A stack's name with its torch: "candidate, torch 2.15.0"."""
    records = (receipt.baseline, receipt.candidate, *receipt.other_stacks)
    return {one.name: f"{one.name}, torch {one.fingerprint.torch}" for one in records if one.fingerprint is not None}


def _outcome(pair: CheckpointPair | None) -> str:
    if pair is None:
        return NONE
    return pair.outcome.value + (", one-way" if pair.one_way else "")


def _rollback(receipt: Receipt) -> Grid:
    record = receipt.rollback
    rows = (
        ("who may pull it", record.owner or "nobody is named"),
        ("where it lives", record.where or "not said"),
        ("how to verify it", record.verify or "not said"),
        ("it expires", record.expires or "not said"),
        ("proven", f"{record.verdict.value.upper()}{f': {record.detail}' if record.detail else ''}"),
    )
    return Grid(title="The fallback", heads=("", ""), rows=rows)


def _roads(receipt: Receipt) -> Iterator[Grid]:
    for road in receipt.rollback.roads:
        rows = tuple(
            (str(proof.rank), proof.backend_class, "not set" if proof.value is None else proof.value, proof.detail)
            for proof in road.ranks
        )
        title = f"Road back {road.name}: {road.verdict.value.upper()}{f', {road.detail}' if road.detail else ''}"
        yield Grid(title=title, heads=("rank", "class that ran", "variable", "remark"), rows=rows)


def _controls(receipt: Receipt) -> Grid:
    rows = tuple(
        (
            control.name,
            control.claim,
            f"{control.got.value.upper()}, wanted {control.expected.value.upper()}",
            "yes" if control.held else "NO",
        )
        for control in receipt.controls
    )
    return Grid(title="Negative controls", heads=("control", "claim", "came to", "held"), rows=rows)


def _work(receipt: Receipt) -> Grid:
    priced = any(work.steps_per_price is not None for work in receipt.work)
    currency = next((work.currency for work in receipt.work if work.currency), "")
    rows = []
    for work in receipt.work:
        price = () if not priced else ((NONE if work.steps_per_price is None else f"{work.steps_per_price:,.1f}"),)
        rows.append(
            (work.stack, work.topology, str(work.steps), f"{work.wall_s:,.1f} s", f"{work.steps_per_hour:,.0f}", *price)
        )
    heads = (
        "stack",
        "topology",
        "steps",
        "start to end",
        "steps an hour",
        *((f"steps a {currency}",) if priced else ()),
    )
    title = "Work from start to end: startup, checkpoints, the failed run and recovery included"
    return Grid(title=title, heads=heads, rows=tuple(rows))


def _cells(receipt: Receipt) -> Grid:
    rows = tuple(
        (
            cell.id,
            cell.verdict.value.upper(),
            f"{cell.wall_s:,.1f} s" if cell.ran else NONE,
            cell.why_not or ("from an earlier run" if cell.resumed else ""),
        )
        for cell in receipt.cells
    )
    return Grid(title="Cells", heads=("cell", "verdict", "took", "remark"), rows=rows)
