"""What the commands write is what the published schemas say."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from fake_pythons import fake_python
from sample_receipts import line, receipt

from hangdrill.certify.compare import compare_receipts
from hangdrill.cli import run_command
from hangdrill.model.schema import schema_of
from hangdrill.model.verdict import Verdict


def plain(value: object) -> Any:
    """As JSON has it: lists for tuples."""
    return json.loads(msgspec.json.encode(value))


def validate(name: str, data: object) -> None:
    jsonschema.validate(data, schema_of(name), cls=jsonschema.Draft202012Validator)


def test_a_fingerprint_is_as_its_schema_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["stack", fake_python(tmp_path / "python"), "--json"]) == 0
    validate("fingerprint", json.loads(capsys.readouterr().out))


def test_a_receipt_is_as_its_schema_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, python = tmp_path / "plan.toml", fake_python(tmp_path / "python", torch="")
    plan.write_text(f'title = "up"\n[baseline]\npython = "{python}"\n[candidate]\npython = "{python}"\n')
    assert run_command(["certify", str(plan), "--out", str(tmp_path / "out"), "--json"]) == 2
    validate("receipt", json.loads(capsys.readouterr().out))
    validate("receipt", json.loads((tmp_path / "out/receipt.json").read_bytes()))
    validate("receipt", plain(receipt()))


def test_a_verification_and_a_comparison_are_as_their_schemas_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from hangdrill.certify.signing import sign_receipt

    run_command(["keygen", str(tmp_path / "k")])
    (tmp_path / "r.json").write_bytes(sign_receipt(receipt(), tmp_path / "k", passphrase=lambda: None))
    for key in ("k.pub", "other.pub"):
        run_command(["keygen", str(tmp_path / "other")])
        capsys.readouterr()
        run_command(["verify", str(tmp_path / "r.json"), "--key", str(tmp_path / key), "--no-stack", "--json"])
        validate("verification", json.loads(capsys.readouterr().out))
    found = compare_receipts(receipt(), receipt(lines=(line(verdict=Verdict.FAIL),)))
    validate("receipt-comparison", plain(found))


def test_a_plan_is_as_its_schema_says() -> None:
    from hangdrill.certify.plan import load_plan

    example = Path(__file__).parents[2] / "docs/examples/certify.toml"
    validate("certify-plan", plain(load_plan(example, os.environ).plan))


def test_what_is_no_receipt_is_not_as_the_schema_says() -> None:
    data = plain(receipt())
    del data["valid_until"]
    with pytest.raises(jsonschema.ValidationError):
        validate("receipt", data)
