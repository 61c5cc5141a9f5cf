"""Two receipts side by side: what got worse decides, what got better and what moved is told."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from sample_receipts import fingerprint, line, receipt, record

from hangdrill.certify.compare import compare_receipts, read_receipt
from hangdrill.certify.key_files import make_keys
from hangdrill.certify.signing import sign_receipt
from hangdrill.model.certification import LineChange, ReceiptComparison
from hangdrill.model.errors import UsageError
from hangdrill.model.receipt import Difference, Receipt
from hangdrill.model.verdict import Verdict

PASS, FAIL, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN


def with_line(verdict: Verdict | None, **changed: Any) -> Receipt:
    return receipt(lines=() if verdict is None else (line(verdict=verdict, **changed),))


def compared(before: Verdict | None, after: Verdict | None) -> ReceiptComparison:
    return compare_receipts(with_line(before), with_line(after))


def test_a_receipt_is_like_itself() -> None:
    found = compare_receipts(receipt(), receipt())
    assert (found.verdict, found.lines, found.stack, found.new_differences) == (PASS, (), (), ())


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (PASS, FAIL, FAIL),
        (UNKNOWN, FAIL, FAIL),
        (None, FAIL, FAIL),
        (PASS, UNKNOWN, UNKNOWN),
        (PASS, None, UNKNOWN),
        (FAIL, UNKNOWN, PASS),
        (FAIL, PASS, PASS),
        (UNKNOWN, PASS, PASS),
        (FAIL, FAIL, PASS),
        (FAIL, None, PASS),
    ],
)
def test_what_got_worse_decides(before: Verdict | None, after: Verdict | None, verdict: Verdict) -> None:
    assert compared(before, after).verdict is verdict


def test_a_changed_line_is_told_with_both_verdicts() -> None:
    (found,) = compared(PASS, FAIL).lines
    whole = line(verdict=FAIL)
    assert found == LineChange(line=whole.id, claim=whole.claim, before=PASS, after=FAIL, detail=whole.detail)


def test_the_candidates_and_the_differences_are_compared() -> None:
    one = Difference(line="x", what="a", baseline="1", candidate="2")
    after = receipt(candidate=record("candidate", fingerprint(nccl="2.31.0")), differences=(one,))
    found = compare_receipts(receipt(differences=()), after)
    assert [change.what for change in found.stack] == ["nccl"]
    assert (found.new_differences, found.gone_differences) == (("a: 1 -> 2",), ())


def test_numbers_are_told_by_their_medians_and_not_judged() -> None:
    found = compare_receipts(with_line(PASS, candidate=(1.0, 2.0, 3.0)), with_line(PASS, candidate=(4.0, 4.0, 9.0)))
    assert (found.verdict, found.numbers[0].before, found.numbers[0].after, found.numbers[0].ratio) == (PASS, 2, 4, 2)
    other_unit = compare_receipts(with_line(PASS), with_line(PASS, unit="ms"))
    assert other_unit.numbers == ()
    from_zero = compare_receipts(with_line(PASS, candidate=(0.0,)), with_line(PASS, candidate=(4.0,)))
    assert from_zero.numbers[0].ratio is None


def test_plain_and_signed_receipts_are_read(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(msgspec.json.encode(receipt()))
    make_keys(tmp_path / "k.pem", tmp_path / "k.pub")
    (tmp_path / "s.json").write_bytes(sign_receipt(receipt(), tmp_path / "k.pem", passphrase=lambda: None))
    assert read_receipt(tmp_path / "r.json") == read_receipt(tmp_path / "s.json") == receipt()


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "hangdrill.result/1"}', '{"payloadType": "x", "payload": "!"}'])
def test_what_is_no_receipt_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(UsageError, match="this is no receipt"):
        read_receipt(tmp_path / "r.json")
