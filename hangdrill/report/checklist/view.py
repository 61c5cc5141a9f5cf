"""From a receipt to the values of the checklist."""

from collections import Counter
from collections.abc import Iterator

from hangdrill.model.receipt import ITEM_TITLES, Item, Line, Receipt, StackRecord
from hangdrill.model.verdict import Verdict, merge
from hangdrill.report.checklist.numbers import numbers_of, remark_of
from hangdrill.report.checklist.tables import grids_of
from hangdrill.report.checklist.values import Checklist, Grid, OpenLine, Row, Section, SignOff
from hangdrill.report.stack import stack_rows

__all__ = ["checklist_of"]

MOST_FILES = 3


def checklist_of(receipt: Receipt, key_id: str = "") -> Checklist:
    """Everything that the page says."""
    return Checklist(
        title=receipt.title,
        verdict=_word(receipt.verdict),
        sentence=receipt.sentence,
        counts=_counts(receipt),
        facts=(*_facts(receipt), ("signature", _signature_text(key_id))),
        open=tuple(_open(receipt)),
        stacks=_stacks(receipt.baseline, receipt.candidate),
        sections=tuple(_sections(receipt)),
        grids=tuple(grids_of(receipt)),
        sign_offs=tuple(_sign_offs(receipt)),
        foot=f"hangdrill {receipt.hangdrill}, receipt {receipt.id}, plan sha256 {receipt.plan.sha256}",
    )


def _signature_text(key_id: str) -> str:
    if not key_id:
        return "none: this receipt is not signed"
    return f"key {key_id}; look with `hangdrill verify receipt.dsse.json --key KEY.pub` whether it is still good"


def _word(verdict: Verdict) -> str:
    return verdict.value.upper()


def _counts(receipt: Receipt) -> str:
    counts = Counter(line.verdict for line in receipt.lines)
    return ", ".join(f"{counts[one]} {_word(one)}" for one in Verdict)


def _facts(receipt: Receipt) -> Iterator[tuple[str, str]]:
    yield "made", f"{receipt.made_at}, begun {receipt.began_at}"
    yield "valid until", f"{receipt.valid_until}, and only while the candidate's fingerprint stays the same"
    yield "by", receipt.who
    if receipt.host:
        yield "on", receipt.host
    if receipt.ring:
        before = f", after {receipt.previous_ring}" if receipt.previous_ring else ", the first"
        yield "ring", receipt.ring + before
    if receipt.previous_receipt_sha256:
        yield "receipt before", f"sha256 {receipt.previous_receipt_sha256}"
    ran = sum(cell.ran for cell in receipt.cells)
    wall_s = sum(cell.wall_s for cell in receipt.cells)
    yield "cells", f"{ran} of {len(receipt.cells)} ran, {wall_s / 60:.1f} minutes"
    yield "evidence", f"{len(receipt.artifacts)} files, each with its sha256 in the receipt"


def _stacks(baseline: StackRecord, candidate: StackRecord) -> Grid:
    """Both fingerprints side by side, one fact a row."""
    sides = [
        dict(stack_rows(stack.fingerprint)) if stack.fingerprint is not None else {} for stack in (baseline, candidate)
    ]
    rows = [
        (
            "Python of it",
            *(f"{one.python} in {one.image}" if one.image else one.python for one in (baseline, candidate)),
        )
    ]
    if baseline.missing or candidate.missing:
        rows.append(("usable", baseline.missing or "yes", candidate.missing or "yes"))
    for name in dict.fromkeys((*sides[0], *sides[1])):
        rows.append((name, sides[0].get(name, "") or "-", sides[1].get(name, "") or "-"))
    return Grid(title="The two stacks", heads=("", "baseline", "candidate"), rows=tuple(rows))


def _open(receipt: Receipt) -> Iterator[OpenLine]:
    """Failures first; lines that lack the same are one."""
    groups: dict[tuple[Verdict, str, str], list[Line]] = {}
    for line in receipt.lines:
        groups.setdefault((line.verdict, line.detail, line.mend), []).append(line)
    for wanted in (Verdict.FAIL, Verdict.UNKNOWN):
        for (verdict, detail, mend), lines in groups.items():
            if verdict is wanted:
                first = lines[0]
                what = f"{first.claim} ({first.topology})" if first.topology else first.claim
                what = what if len(lines) == 1 else f"{len(lines)} lines: {detail}"
                yield OpenLine(verdict=_word(verdict), what=what, mend=mend, id=first.id)


def _sections(receipt: Receipt) -> Iterator[Section]:
    for item in Item:
        lines = [line for line in receipt.lines if line.item is item]
        if lines:
            yield Section(
                title=ITEM_TITLES[item],
                verdict=_word(merge(line.verdict for line in lines)),
                rows=tuple(_row(line) for line in lines),
            )


def _row(line: Line) -> Row:
    return Row(
        id=line.id,
        verdict=_word(line.verdict),
        topology=line.topology,
        claim=line.claim,
        numbers=numbers_of(line),
        remark=remark_of(line),
        mend="" if line.verdict is Verdict.PASS else line.mend,
        rule=line.rule,
        evidence=_first(line.evidence),
    )


def _first(paths: tuple[str, ...]) -> tuple[str, ...]:
    """A page is for reading: the first files, and how many more the receipt names."""
    more = len(paths) - MOST_FILES
    return paths if more <= 1 else (*paths[:MOST_FILES], f"and {more} more, in the receipt")


def _sign_offs(receipt: Receipt) -> Iterator[SignOff]:
    yield SignOff(role="Certified by", name=receipt.who)
    yield SignOff(role="Evidence reviewed by")
    yield SignOff(role="Fallback owned by", name=receipt.rollback.owner)
    yield SignOff(role=f"Approved for the ring {receipt.ring} by" if receipt.ring else "Approved by")
