"""Whatever somebody puts in the place of a receipt is refused in one sentence; it never ends in a traceback."""

import base64
import copy
import io
import json
from pathlib import Path
from typing import Any

import pytest
from sample_receipts import receipt

from hangdrill.certify.key_files import make_keys
from hangdrill.certify.signing import SignatureProblem, open_envelope, sign_receipt
from hangdrill.certify.verifying import read_bytes
from hangdrill.cli import run_command
from hangdrill.model.errors import UsageError

STRANGE: tuple[Any, ...] = (None, "", [], {}, 1, True, "x", [None], 1e300)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("keys")
    make_keys(home / "k.pem", home / "k.pub")
    return home / "k.pem"


@pytest.fixture(scope="module")
def envelope(key: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sign_receipt(receipt(), key, passphrase=lambda: None))
    return found


def refused(changed: object, key: Path) -> None:
    """In exactly the form that hangdrill writes, so that nothing but the content can be the reason."""
    with pytest.raises(SignatureProblem):
        open_envelope((json.dumps(changed, indent=2) + "\n").encode(), key.with_name("k.pub"))


@pytest.mark.parametrize("value", STRANGE, ids=repr)
@pytest.mark.parametrize("field", ["payload", "payloadType", "signatures"])
def test_a_strange_field_is_refused(envelope: dict[str, Any], key: Path, field: str, value: object) -> None:
    refused({**envelope, field: value}, key)
    refused({name: one for name, one in envelope.items() if name != field}, key)


@pytest.mark.parametrize("value", STRANGE, ids=repr)
@pytest.mark.parametrize("field", ["keyid", "sig"])
def test_a_strange_signature_is_refused(envelope: dict[str, Any], key: Path, field: str, value: object) -> None:
    changed = copy.deepcopy(envelope)
    changed["signatures"][0][field] = value
    refused(changed, key)


def test_a_signature_by_another_key_under_this_keys_name_is_refused(
    envelope: dict[str, Any], key: Path, tmp_path: Path
) -> None:
    make_keys(tmp_path / "other.pem", tmp_path / "other.pub")
    other = json.loads(sign_receipt(receipt(), tmp_path / "other.pem", passphrase=lambda: None))
    other["signatures"][0]["keyid"] = envelope["signatures"][0]["keyid"]
    refused(other, key)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"payload":' * 100_000, b"\xff\xfe", b"NaN", b"\0" * 100])
def test_rubbish_is_refused(key: Path, data: bytes) -> None:
    with pytest.raises(SignatureProblem, match="no DSSE envelope"):
        open_envelope(data, key.with_name("k.pub"))


def test_a_file_without_end_is_not_read_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdrill.certify.verifying.MAX_FILE_BYTES", 1 << 20)
    with pytest.raises(UsageError, match="no receipt"):
        read_bytes(Path("/dev/zero"))


@pytest.mark.parametrize("words", [["keygen", ""], ["keygen", "{home}/k", "--encrypt"]])
def test_a_key_without_a_name_or_a_passphrase_is_not_made(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HANGDRILL_KEY_PASSPHRASE", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert run_command([word.format(home=tmp_path) for word in words]) == 64
    assert not list(tmp_path.iterdir())


def test_a_receipt_of_lists_without_end_is_no_receipt(
    envelope: dict[str, Any], key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nested = b'{"_type": "https://in-toto.io/Statement/v1", "x": ' + b"[" * 100_000
    signed, plain = tmp_path / "r.dsse.json", tmp_path / "r.json"
    payload = base64.b64encode(nested).decode()
    signed.write_text(json.dumps({**envelope, "payload": payload}, indent=2) + "\n")
    plain.write_bytes(b'{"schema": "hangdrill.receipt/1", "x": ' + b"[" * 100_000)
    make_keys(tmp_path / "l.pem", tmp_path / "l.pub")
    assert run_command(["sign", str(signed), "--key", str(tmp_path / "l.pem")]) == 64
    for file in (signed, plain):
        assert run_command(["compare", str(file), str(file)]) == 64
    assert "bug in hangdrill" not in capsys.readouterr().err
