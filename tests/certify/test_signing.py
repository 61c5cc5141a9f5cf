"""A signed receipt is what was signed, byte for byte, and only the owner of the key could have signed it."""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_receipts import receipt

from hangdrill.certify.key_files import key_id_of, make_keys
from hangdrill.certify.signing import (
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    SignatureProblem,
    add_signature,
    open_envelope,
    read_statement,
    sign_receipt,
    signed_by,
)
from hangdrill.model.errors import UsageError


def nothing() -> bytes | None:
    return None


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    home = tmp_path_factory.mktemp("keys")
    make_keys(home / "k.pem", home / "k.pub")
    return home / "k.pem", home / "k.pub"


@pytest.fixture(scope="module")
def signed(keys: tuple[Path, Path]) -> bytes:
    return sign_receipt(receipt(), keys[0], passphrase=nothing)


def test_what_was_signed_comes_out_whole(keys: tuple[Path, Path], signed: bytes) -> None:
    statement = open_envelope(signed, keys[1])
    assert statement.predicate == receipt()
    assert (statement.predicate_type, statement.type_) == (PREDICATE_TYPE, "https://in-toto.io/Statement/v1")
    assert statement.subject[0].digest == {"sha256": receipt().candidate.digest}


def test_it_is_a_dsse_envelope_as_others_read_it(signed: bytes) -> None:
    envelope = json.loads(signed)
    assert set(envelope) == {"payload", "payloadType", "signatures"}
    assert envelope["payloadType"] == PAYLOAD_TYPE


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_is_refused(data: st.DataObject, keys: tuple[Path, Path], signed: bytes) -> None:
    at = data.draw(st.integers(0, len(signed) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != signed[at]))
    changed = signed[:at] + bytes([other]) + signed[at + 1 :]
    with pytest.raises(SignatureProblem):
        open_envelope(changed, keys[1])


def test_unused_bits_of_base64_hide_no_change(keys: tuple[Path, Path], signed: bytes) -> None:
    envelope = json.loads(signed)
    text = envelope["signatures"][0]["sig"]  # 64 bytes end in "==": four bits of the last letter mean nothing
    assert text.endswith("==")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    twin = letters[letters.index(text[-3]) ^ 1]
    with pytest.raises(SignatureProblem, match="byte for byte"):
        open_envelope(signed.replace(text.encode(), f"{text[:-3]}{twin}==".encode()), keys[1])


def test_another_form_of_the_same_envelope_is_refused(keys: tuple[Path, Path], signed: bytes) -> None:
    for changed in (signed + b" ", signed.replace(b"\n", b""), b"", b"{}", b"[]"):
        with pytest.raises(SignatureProblem):
            open_envelope(changed, keys[1])


def test_another_key_is_refused(tmp_path: Path, signed: bytes) -> None:
    make_keys(tmp_path / "o.pem", tmp_path / "o.pub")
    with pytest.raises(SignatureProblem, match="not signed with this key"):
        open_envelope(signed, tmp_path / "o.pub")


def test_another_key_under_the_right_key_id_is_refused(tmp_path: Path, keys: tuple[Path, Path], signed: bytes) -> None:
    make_keys(tmp_path / "o.pem", tmp_path / "o.pub")
    forged = sign_receipt(receipt(title="forged"), tmp_path / "o.pem", passphrase=nothing)
    forged = forged.replace(key_id_of(tmp_path / "o.pub").encode(), key_id_of(keys[1]).encode())
    with pytest.raises(SignatureProblem, match="does not fit"):
        open_envelope(forged, keys[1])


def test_it_can_be_looked_at_without_a_key(signed: bytes) -> None:
    assert read_statement(signed).predicate.title == receipt().title


def test_it_says_which_key_signed_it(keys: tuple[Path, Path], signed: bytes) -> None:
    assert signed_by(signed) == key_id_of(keys[1])


def test_an_envelope_of_something_else_is_said(keys: tuple[Path, Path]) -> None:
    with pytest.raises(SignatureProblem, match="no DSSE envelope"):
        open_envelope(b'{"schema": "hangdrill.receipt/1"}', keys[1])


def test_the_private_key_is_private_and_nothing_is_overwritten(tmp_path: Path) -> None:
    make_keys(tmp_path / "k.pem", tmp_path / "k.pub")
    assert stat.S_IMODE((tmp_path / "k.pem").stat().st_mode) == 0o600
    before = (tmp_path / "k.pem").read_bytes()
    with pytest.raises(UsageError, match="there already"):
        make_keys(tmp_path / "k.pem", tmp_path / "k.pub")
    with pytest.raises(UsageError, match="there already"):
        make_keys(tmp_path / "new.pem", tmp_path / "k.pub")
    assert (tmp_path / "k.pem").read_bytes() == before
    assert not (tmp_path / "new.pem").exists()


def test_an_encrypted_key_wants_its_passphrase(tmp_path: Path) -> None:
    make_keys(tmp_path / "k.pem", tmp_path / "k.pub", passphrase=b"open sesame")
    good = sign_receipt(receipt(), tmp_path / "k.pem", passphrase=lambda: b"open sesame")
    assert open_envelope(good, tmp_path / "k.pub").predicate == receipt()
    with pytest.raises(UsageError, match="no passphrase"):
        sign_receipt(receipt(), tmp_path / "k.pem", passphrase=nothing)
    with pytest.raises(UsageError, match="passphrase is wrong"):
        sign_receipt(receipt(), tmp_path / "k.pem", passphrase=lambda: b"sesame")


def test_files_that_are_no_keys_are_one_clear_error(tmp_path: Path, signed: bytes) -> None:
    (tmp_path / "x").write_text("hello")
    with pytest.raises(UsageError, match="no private key"):
        sign_receipt(receipt(), tmp_path / "x", passphrase=nothing)
    with pytest.raises(UsageError, match="no public key"):
        open_envelope(signed, tmp_path / "x")
    with pytest.raises(UsageError, match="cannot read"):
        open_envelope(signed, tmp_path / "none")


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = generate_private_key(SECP256R1())
    (tmp_path / "ec.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(UsageError, match="no Ed25519 key"):
        sign_receipt(receipt(), tmp_path / "ec.pem", passphrase=nothing)


def test_both_signatures_are_wanted_and_neither_replaces_the_other(keys: tuple[Path, Path], tmp_path: Path) -> None:
    make_keys(tmp_path / "owner.pem", tmp_path / "owner.pub")
    first = sign_receipt(receipt(), keys[0], passphrase=nothing)
    both = add_signature(first, tmp_path / "owner.pem", passphrase=nothing)
    wanted = (keys[1], tmp_path / "owner.pub")
    assert open_envelope(both, *wanted).predicate == receipt()
    assert [open_envelope(both, key).predicate for key in wanted] == [receipt()] * 2
    assert signed_by(both) == ", ".join(map(key_id_of, wanted))
    with pytest.raises(SignatureProblem, match="2 of these keys must have signed it, and 1 did"):
        open_envelope(first, *wanted)
    assert open_envelope(first, *wanted, threshold=1).predicate == receipt()


def test_a_signature_of_a_given_key_that_does_not_fit_is_refused_whatever_the_threshold(
    keys: tuple[Path, Path], tmp_path: Path
) -> None:
    make_keys(tmp_path / "owner.pem", tmp_path / "owner.pub")
    both = add_signature(
        sign_receipt(receipt(), keys[0], passphrase=nothing), tmp_path / "owner.pem", passphrase=nothing
    )
    signatures = json.loads(both)["signatures"]
    forged = both.replace(signatures[1]["sig"].encode(), signatures[0]["sig"].encode())
    with pytest.raises(SignatureProblem, match="does not fit"):
        open_envelope(forged, keys[1], tmp_path / "owner.pub", threshold=1)
    assert open_envelope(forged, keys[1]).predicate == receipt()  # who does not ask for the owner's


@pytest.mark.parametrize("threshold", [None, 1, 2])
def test_one_key_named_twice_is_no_second_signature(
    keys: tuple[Path, Path], signed: bytes, tmp_path: Path, threshold: int | None
) -> None:
    copy = tmp_path / "owner.pub"
    copy.write_bytes(keys[1].read_bytes())
    with pytest.raises(UsageError, match="the same key twice"):
        open_envelope(signed, keys[1], copy, threshold=threshold)
    with pytest.raises(UsageError, match="2 signatures are wanted, of 1 keys"):
        open_envelope(signed, keys[1], threshold=2)
    with pytest.raises(UsageError, match="signed it already"):
        add_signature(signed, keys[0], passphrase=nothing)


def test_nothing_is_added_to_a_changed_envelope(keys: tuple[Path, Path], signed: bytes, tmp_path: Path) -> None:
    make_keys(tmp_path / "owner.pem", tmp_path / "owner.pub")
    with pytest.raises(SignatureProblem):
        add_signature(signed + b" ", tmp_path / "owner.pem", passphrase=nothing)


def test_without_a_key_nothing_is_proven(signed: bytes) -> None:
    with pytest.raises(UsageError, match="nothing is proven"):
        open_envelope(signed)
