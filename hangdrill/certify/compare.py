"""Two receipts side by side: which lines came to another verdict, what else differs, and how the numbers moved.

`before` and `after` are two certifications in time: of one candidate on two days, of two candidates, or of two rings.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec

from hangdrill.certify.signing import SignatureProblem, read_statement
from hangdrill.certify.verifying import read_bytes
from hangdrill.model.certification import LineChange, NumberChange, ReceiptComparison
from hangdrill.model.errors import UsageError
from hangdrill.model.fingerprint import changes
from hangdrill.model.receipt import Line, Receipt
from hangdrill.model.verdict import Verdict, merge

__all__ = ["compare_receipts", "read_receipt"]


def read_receipt(file: Path) -> Receipt:
    """Of receipt.json or of a signed envelope, whose signature is not looked at. UsageError."""
    data = read_bytes(file)
    hint = "name OUT/receipt.json or OUT/receipt.dsse.json of a certification"
    try:
        if b'"payloadType"' in data[-4096:] or b'"payloadType"' in data[:4096]:
            return read_statement(data).predicate
        return msgspec.json.decode(data, type=Receipt)
    except (SignatureProblem, msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"this is no receipt: {error}", where=str(file), next_step=hint) from error


def compare_receipts(
    before: Receipt, after: Receipt, *, names: tuple[str, str] = ("before", "after")
) -> ReceiptComparison:
    """Everything in which they differ, in the order of the lines of `after`."""
    lines = tuple(_lines(before, after))
    old = {(one.what, one.baseline, one.candidate) for one in before.differences}
    new = {(one.what, one.baseline, one.candidate) for one in after.differences}
    left, right = before.candidate.fingerprint, after.candidate.fingerprint
    return ReceiptComparison(
        before=names[0],
        after=names[1],
        verdict=merge((Verdict.PASS, *(_judged(change) for change in lines))),
        lines=lines,
        stack=changes(left, right) if left is not None and right is not None else (),
        new_differences=tuple(f"{what}: {one} -> {other}" for what, one, other in sorted(new - old)),
        gone_differences=tuple(f"{what}: {one} -> {other}" for what, one, other in sorted(old - new)),
        numbers=tuple(_numbers(before, after)),
    )


def _lines(before: Receipt, after: Receipt) -> Iterator[LineChange]:
    old = {line.id: line for line in before.lines}
    for line in after.lines:
        earlier = old.pop(line.id, None)
        verdict = earlier.verdict if earlier is not None else None
        if verdict is not line.verdict:
            yield LineChange(line=line.id, claim=line.claim, before=verdict, after=line.verdict, detail=line.detail)
    for line in old.values():
        yield LineChange(line=line.id, claim=line.claim, before=line.verdict, after=None)


def _judged(change: LineChange) -> Verdict:
    """What one change counts for."""
    if change.after is Verdict.FAIL:
        return Verdict.FAIL
    is_worse = change.after is Verdict.UNKNOWN or (change.after is None and change.before is Verdict.PASS)
    return Verdict.UNKNOWN if is_worse and change.before is not Verdict.FAIL else Verdict.PASS


def _numbers(before: Receipt, after: Receipt) -> Iterator[NumberChange]:
    old: dict[str, Line] = {line.id: line for line in before.lines if line.candidate}
    for line in after.lines:
        earlier = old.get(line.id)
        if earlier is None or not line.candidate or earlier.unit != line.unit:
            continue
        one, other = median(earlier.candidate), median(line.candidate)
        yield NumberChange(line=line.id, unit=line.unit, before=one, after=other, ratio=other / one if one else None)
