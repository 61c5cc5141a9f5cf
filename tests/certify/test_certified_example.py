"""The filled-in page of the docs: made by the command, readable by this release, and signed."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from hangdrill.cli import run_command
from hangdrill.model.receipt import Receipt
from hangdrill.model.verdict import Verdict
from hangdrill.report.checkpoint_table import pairs_markdown

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples/certified"
RECEIPT = msgspec.json.decode((EXAMPLE / "receipt.json").read_bytes(), type=Receipt)
FILES = ("receipt.json", "checklist.md", "checklist.html")


def answers(capsys: pytest.CaptureFixture[str], receipt: Path, at: str) -> dict[str, str]:
    words = ["verify", str(receipt), "--key", str(EXAMPLE / "release.pem.pub"), "--no-stack", "--at", at, "--json"]
    assert run_command(words) == 1  # two of its lines fail
    return {one["question"]: one["verdict"] for one in json.loads(capsys.readouterr().out)["answers"]}


def test_the_signature_fits_and_the_date_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = tmp_path / "receipt.dsse.json"
    alone.write_bytes((EXAMPLE / alone.name).read_bytes())
    assert answers(capsys, alone, "2026-12-01") == {"signature": "pass", "dates": "pass", "verdict": "fail"}
    assert answers(capsys, alone, "2027-01-15")["dates"] == "fail"


def test_one_byte_is_enough_to_refuse_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = tmp_path / "receipt.dsse.json"
    data = bytearray((EXAMPLE / changed.name).read_bytes())
    data[len(data) // 2] ^= 1
    changed.write_bytes(data)
    assert answers(capsys, changed, "2026-12-01")["signature"] == "fail"


def test_its_table_of_checkpoints_is_the_one_of_the_page() -> None:
    names = {"2.13.0": "2.13.0", "baseline": "2.14.1", "candidate": "2.15.0"}
    pairs = [
        msgspec.structs.replace(pair, saved_by=names[pair.saved_by], restored_by=names[pair.restored_by])
        for pair in RECEIPT.checkpoint_pairs
    ]
    pairs.sort(key=lambda pair: (pair.saved_by, pair.restored_by))
    table = pairs_markdown(pairs).partition("\n\n")[0]
    assert table in (DOCS / "checkpoints.md").read_text(encoding="utf-8")


def test_the_page_around_it_says_what_the_receipt_says() -> None:
    page = (DOCS / "certified-example.md").read_text(encoding="utf-8")
    verdicts = [line.verdict for line in RECEIPT.lines]
    for verdict in Verdict:
        assert f"{verdicts.count(verdict)} lines {verdict.value.upper()}" in page
    assert {line.id for line in RECEIPT.lines if line.verdict is Verdict.FAIL} == {
        "checkpoint/way-back", "differences/declared",
    }  # fmt: skip
    assert all(control.held for control in RECEIPT.controls)
    assert len(RECEIPT.controls) == 6


@pytest.mark.parametrize("name", FILES)
def test_no_path_of_the_machine_that_made_it_is_in_it(name: str) -> None:
    text = (EXAMPLE / name).read_text(encoding="utf-8")
    assert not re.search(r"/(root|home|work|opt|tmp|Users)/", text)
