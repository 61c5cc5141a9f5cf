"""What the commands around a receipt answer: a dry run, a verification, a comparison of two receipts."""

from typing import Literal

import msgspec

from hangdrill.model.fingerprint import Change
from hangdrill.model.receipt import Receipt
from hangdrill.model.verdict import Verdict

__all__ = ["Answer", "DryCell", "DryRun", "LineChange", "NumberChange", "ReceiptComparison", "Verification"]


class DryCell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell that would run. blocked: why it could not, as far as can be told without starting anything."""

    id: str
    topology: str
    title: str
    stacks: tuple[str, ...]
    gpus: int
    estimate_s: float
    lines: int
    blocked: str = ""


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a certification would do."""

    title: str
    stacks: dict[str, str]
    cells: tuple[DryCell, ...]
    estimate_s: float
    """Of the cells that are not blocked, on an idle machine, fingerprints included."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One question about a signed receipt: "signature", "dates", "stack", "evidence" or "verdict"."""

    question: Literal["signature", "dates", "stack", "evidence", "verdict"]
    verdict: Verdict
    detail: str
    mend: str = ""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """All answers. receipt: None when the signature does not prove it, so that nothing of it is shown as if it were."""

    schema: Literal["hangdrill.verification/1"] = "hangdrill.verification/1"
    file: str
    verdict: Verdict
    answers: tuple[Answer, ...]
    receipt: Receipt | None = None


class LineChange(msgspec.Struct, frozen=True, kw_only=True):
    """A line that came to another verdict. None: the receipt has no such line."""

    line: str
    claim: str
    before: Verdict | None
    after: Verdict | None
    detail: str = ""


class NumberChange(msgspec.Struct, frozen=True, kw_only=True):
    """A measure of the candidates: the medians of both receipts, and after over before. Told, and not judged."""

    line: str
    unit: str
    before: float
    after: float
    ratio: float | None


class ReceiptComparison(msgspec.Struct, frozen=True, kw_only=True):
    """FAIL: a line fails that did not. UNKNOWN: a line is unknown, or gone, that was neither. Else PASS."""

    schema: Literal["hangdrill.receipt-comparison/1"] = "hangdrill.receipt-comparison/1"
    before: str
    after: str
    verdict: Verdict
    lines: tuple[LineChange, ...] = ()
    stack: tuple[Change, ...] = ()
    new_differences: tuple[str, ...] = ()
    gone_differences: tuple[str, ...] = ()
    numbers: tuple[NumberChange, ...] = ()
