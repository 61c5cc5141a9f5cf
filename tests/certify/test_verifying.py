"""A signed receipt is refused once its date is over, its stack changed, its evidence changed, or it was no PASS."""

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_pythons import fake_python
from sample_receipts import fingerprint, receipt, record

from hangdrill.certify.cells import evidence_file
from hangdrill.certify.key_files import make_keys
from hangdrill.certify.signing import sign_receipt
from hangdrill.certify.verifying import verify_receipt
from hangdrill.model.certification import Verification
from hangdrill.model.errors import UsageError
from hangdrill.model.receipt import Receipt
from hangdrill.model.verdict import Verdict

NOW = datetime(2026, 12, 1, tzinfo=timezone.utc)


class Signed:
    """A signed receipt in its directory, and the stack that it is of."""

    def __init__(self, home: Path, **changed: Any) -> None:
        self.home = home
        self.python = fake_python(home / "stack" / "python")
        make_keys(home / "k.pem", home / "k.pub")
        self.file = home / "receipt.dsse.json"
        self.sign(receipt(**changed))

    def sign(self, made: Receipt) -> None:
        self.file.write_bytes(sign_receipt(made, self.home / "k.pem", passphrase=lambda: None))

    def verify(self, *, now: datetime = NOW, **options: Any) -> Verification:
        options.setdefault("python", self.python)
        return verify_receipt(self.file, [self.home / "k.pub"], now=now, environ=os.environ, **options)

    def answers(self, **options: Any) -> dict[str, Verdict]:
        return {answer.question: answer.verdict for answer in self.verify(**options).answers}


@pytest.fixture
def signed(tmp_path: Path) -> Signed:
    return Signed(tmp_path)


def test_a_good_receipt_is_valid(signed: Signed) -> None:
    found = signed.verify()
    assert found.verdict is Verdict.PASS, found.answers
    assert found.receipt == receipt()


def test_one_changed_byte_is_refused_and_nothing_of_it_is_shown(signed: Signed) -> None:
    data = bytearray(signed.file.read_bytes())
    data[len(data) // 2] ^= 1
    signed.file.write_bytes(data)
    found = signed.verify()
    assert (found.verdict, found.receipt) == (Verdict.FAIL, None)


def test_the_day_after_it_is_expired(signed: Signed) -> None:
    until = datetime(2026, 12, 29, 23, 40, tzinfo=timezone.utc)
    assert signed.answers(now=until - timedelta(seconds=1))["dates"] is Verdict.PASS
    assert signed.answers(now=until)["dates"] is Verdict.FAIL


def test_a_receipt_from_the_future_is_refused(signed: Signed) -> None:
    assert signed.answers(now=datetime(2026, 11, 1, tzinfo=timezone.utc))["dates"] is Verdict.FAIL


def test_dates_that_are_none_are_refused(signed: Signed) -> None:
    signed.sign(receipt(valid_until="for ever"))
    assert signed.answers()["dates"] is Verdict.FAIL


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"packages": fingerprint().packages[1:]}, "package:numpy"),
        ({"nccl": "2.31.0"}, "nccl: 2.30.7 -> 2.31.0"),
        ({"driver": "590.1"}, "driver"),
        ({"environment": {"NCCL_DEBUG": "WARN", "TORCH_DIST_USE_NCCL2": "0"}}, "env:TORCH_DIST_USE_NCCL2: none -> 0"),
        ({"changed_files": ("torch/distributed/c10d.py",)}, "torch.changed-files"),
    ],
)
def test_one_changed_fact_of_the_stack_makes_it_stale_and_is_named(
    signed: Signed, changed: dict[str, Any], named: str
) -> None:
    fake_python(Path(signed.python), **changed)
    found = next(answer for answer in signed.verify().answers if answer.question == "stack")
    assert found.verdict is Verdict.FAIL
    assert named in found.detail


@pytest.mark.parametrize(
    "changed",
    [
        {"host": "node-2"},
        {"executable": "/b/bin/python"},
        {"container": "docker"},
        {"gpus": fingerprint().gpus[:1]},
        {"environment": {"NCCL_DEBUG": "WARN", "CUDA_VISIBLE_DEVICES": "3", "TORCHINDUCTOR_CACHE_DIR": "/tmp/x"}},
    ],
)
def test_another_node_of_the_same_stack_is_not_stale(signed: Signed, changed: dict[str, Any]) -> None:
    fake_python(Path(signed.python), **changed)
    assert signed.answers()["stack"] is Verdict.PASS


def test_a_stack_that_is_not_here_is_unknown_unless_it_is_not_asked_for(signed: Signed) -> None:
    assert signed.verify(python="/nowhere/python").verdict is Verdict.UNKNOWN
    assert signed.verify(look_at_stack=False).verdict is Verdict.PASS


def test_a_receipt_without_a_fingerprint_is_unknown(signed: Signed) -> None:
    signed.sign(receipt(candidate=record("candidate", None)))
    assert signed.answers()["stack"] is Verdict.UNKNOWN


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.UNKNOWN])
def test_a_receipt_that_did_not_pass_is_not_valid(signed: Signed, verdict: Verdict) -> None:
    signed.sign(receipt(verdict=verdict))
    assert signed.verify().verdict is verdict


def test_changed_and_missing_evidence_beside_the_receipt_is_found(signed: Signed) -> None:
    files = [signed.home / "cells" / name for name in ("a.json", "b.json")]
    files[0].parent.mkdir()
    for file in files:
        file.write_text("1")
    signed.sign(receipt(artifacts=tuple(evidence_file(file, signed.home) for file in files)))
    assert signed.answers()["evidence"] is Verdict.PASS
    files[0].write_text("2")
    assert signed.answers()["evidence"] is Verdict.FAIL
    files[0].unlink()
    assert signed.answers()["evidence"] is Verdict.UNKNOWN
    files[1].unlink()
    assert "evidence" not in signed.answers()


def test_a_receipt_json_that_says_something_else_is_found(signed: Signed) -> None:
    evidence, text = signed.home / "plan.toml", signed.home / "receipt.json"
    evidence.write_text("1")
    made = receipt(artifacts=(evidence_file(evidence, signed.home),))
    signed.sign(made)
    text.write_bytes(msgspec.json.format(msgspec.json.encode(made)))
    assert signed.answers()["evidence"] is Verdict.PASS
    text.write_bytes(msgspec.json.encode(msgspec.structs.replace(made, title="all is well")))
    found = next(answer for answer in signed.verify().answers if answer.question == "evidence")
    assert (found.verdict, "receipt.json" in found.detail) == (Verdict.FAIL, True)
    text.write_text("{")
    assert signed.answers()["evidence"] is Verdict.FAIL


@pytest.mark.parametrize("way", ["directory", "pipe", "circle", "device"])
def test_something_else_in_the_place_of_evidence_is_no_pass(signed: Signed, way: str) -> None:
    files = [signed.home / "a", signed.home / "b"]
    for file in files:
        file.write_text("1")
    signed.sign(receipt(artifacts=tuple(evidence_file(file, signed.home) for file in files)))
    files[0].unlink()
    if way == "directory":
        files[0].mkdir()
    elif way == "pipe":
        os.mkfifo(files[0])
    else:
        files[0].symlink_to(files[0] if way == "circle" else "/dev/zero")
    assert signed.answers()["evidence"] is Verdict.UNKNOWN


def test_no_receipt_is_one_clear_error(signed: Signed) -> None:
    signed.file.unlink()
    with pytest.raises(UsageError, match="cannot read the receipt"):
        signed.verify()


def test_a_receipt_json_alone_beside_it_must_say_the_same_too(signed: Signed) -> None:
    text, made = signed.home / "receipt.json", receipt()
    text.write_bytes(msgspec.json.encode(made))
    assert "evidence" not in signed.answers()
    text.write_bytes(msgspec.json.encode(msgspec.structs.replace(made, title="all is well")))
    assert signed.answers()["evidence"] is Verdict.FAIL
    for other in (msgspec.json.encode(msgspec.structs.replace(made, id="another")), b"{", b"[" * 100_000):
        text.write_bytes(other)
        assert "evidence" not in signed.answers()


def test_a_receipt_json_of_lists_without_end_is_not_what_was_signed(signed: Signed) -> None:
    evidence = signed.home / "plan.toml"
    evidence.write_text("1")
    signed.sign(receipt(artifacts=(evidence_file(evidence, signed.home),)))
    (signed.home / "receipt.json").write_bytes(b'{"more": ' + b"[" * 100_000)
    assert signed.answers()["evidence"] is Verdict.FAIL
