"""Sign a receipt and read a signed one: Ed25519 in a DSSE envelope around an in-toto statement, by securesystemslib.

The statement's subjects are the stacks (by the digest of their fingerprint) and the plan; its predicate is the receipt.
Nothing here looks at a clock or at a stack: that is `verifying.py`.
"""

import contextlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from hangdrill.model.errors import MachineError, UsageError
from hangdrill.model.receipt import Receipt

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey

__all__ = [
    "PAYLOAD_TYPE",
    "PREDICATE_TYPE",
    "SignatureProblem",
    "Statement",
    "Subject",
    "can_sign",
    "key_id_of",
    "make_keys",
    "open_envelope",
    "read_statement",
    "sign_receipt",
    "signed_by",
]

PAYLOAD_TYPE = "application/vnd.in-toto+json"
PREDICATE_TYPE = "urn:hangdrill:receipt:1"


class SignatureProblem(Exception):
    """The envelope is not what the owner of the key signed; the text says why."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What the statement is about. digest: {"sha256": ...}."""

    name: str
    digest: dict[str, str]


class Statement(
    msgspec.Struct, frozen=True, kw_only=True, rename={"type_": "_type", "predicate_type": "predicateType"}
):
    """An in-toto statement whose predicate is a receipt."""

    type_: Literal["https://in-toto.io/Statement/v1"] = "https://in-toto.io/Statement/v1"
    subject: tuple[Subject, ...]
    predicate_type: Literal["urn:hangdrill:receipt:1"] = "urn:hangdrill:receipt:1"
    predicate: Receipt


def make_keys(private: Path, public: Path, *, passphrase: bytes | None = None) -> str:
    """Write a new key pair, PEM, the private one with mode 0600; its key id. Nothing is overwritten."""
    _need_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    encryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    shown = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    _write_new(private, secret, 0o600)
    try:
        _write_new(public, shown, 0o644)
    except (UsageError, MachineError):
        private.unlink()
        raise
    return key_id_of(public)


def key_id_of(public: Path) -> str:
    """The id of a public key, as envelopes name it."""
    return str(_read_public(public).keyid)


def can_sign(private: Path, *, passphrase: Callable[[], bytes | None]) -> None:
    """Read the key, and nothing else. Raises what signing would."""
    _need_library()
    _read_private(private, passphrase)


def sign_receipt(receipt: Receipt, private: Path, *, passphrase: Callable[[], bytes | None]) -> bytes:
    """The envelope as a file holds it. passphrase: asked for only when the key is encrypted."""
    _need_library()
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    signer = CryptoSigner(_read_private(private, passphrase))
    payload = msgspec.json.encode(Statement(subject=_subjects(receipt), predicate=receipt))
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return _file_bytes(envelope)


def open_envelope(data: bytes, public: Path) -> Statement:
    """The statement, once the key's signature over it is proven. SignatureProblem when it is not what was signed."""
    _need_library()
    from securesystemslib.exceptions import VerificationError

    envelope = _decode(data)
    key = _read_public(public)
    if key.keyid not in envelope.signatures:
        signed_by = ", ".join(keyid[:16] for keyid in envelope.signatures) or "nobody"
        raise SignatureProblem(f"it is not signed with this key: {key.keyid[:16]} is wanted, {signed_by} signed it")
    try:
        envelope.verify([key], 1)
    except VerificationError as error:
        raise SignatureProblem("the signature does not fit: the receipt was changed after it was signed") from error
    return _statement(envelope)


def signed_by(data: bytes) -> str:
    """The id of the key that an envelope names; it proves nothing. SignatureProblem when it is none."""
    _need_library()
    return ", ".join(_decode(data).signatures)


def read_statement(data: bytes) -> Statement:
    """The statement, whoever signed it: for looking at it, never for trusting it. SignatureProblem when it is none."""
    _need_library()
    return _statement(_decode(data))


def _subjects(receipt: Receipt) -> tuple[Subject, ...]:
    stacks = [
        Subject(name=f"{stack.name}: torch {stack.fingerprint.torch}", digest={"sha256": stack.digest})
        for stack in (receipt.candidate, receipt.baseline, *receipt.other_stacks)
        if stack.fingerprint is not None
    ]
    return (*stacks, Subject(name="plan", digest={"sha256": receipt.plan.sha256}))


def _file_bytes(envelope: "Envelope") -> bytes:
    return msgspec.json.format(msgspec.json.encode(envelope.to_dict()), indent=2) + b"\n"


def _decode(data: bytes) -> "Envelope":
    """Byte for byte what `sign_receipt` writes: another form of the same envelope is refused, so that a changed byte
    can never hide in spaces, in unused bits of base64 or in an unknown key."""
    from securesystemslib.dsse import Envelope

    try:
        envelope = Envelope.from_dict(msgspec.json.decode(data, type=dict))
        whole = _file_bytes(envelope) == data
    except Exception as error:  # whatever a library says of bytes that anybody may have written
        raise SignatureProblem(f"it is no DSSE envelope: {type(error).__name__}: {error}") from error
    if envelope.payload_type != PAYLOAD_TYPE:
        raise SignatureProblem(f"it holds {envelope.payload_type}, and no in-toto statement")
    if not whole:
        raise SignatureProblem(
            "the file was changed after it was written: it is not what hangdrill writes, byte for byte"
        )
    return envelope


def _statement(envelope: "Envelope") -> Statement:
    try:
        return msgspec.json.decode(envelope.payload, type=Statement)
    except msgspec.DecodeError as error:
        raise SignatureProblem(f"it holds no receipt that this hangdrill understands: {error}") from error


def _read_private(path: Path, passphrase: Callable[[], bytes | None]) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _read(path, "the private key")
    secret = passphrase() if b"ENCRYPTED" in data else None
    try:
        key = load_pem_private_key(data, password=secret)
    except TypeError as error:
        raise UsageError(
            "the key is encrypted, and there is no passphrase",
            where=str(path),
            next_step="set HANGDRILL_KEY_PASSPHRASE",
        ) from error
    except Exception as error:  # ValueError, UnsupportedAlgorithm, ...
        what = "the passphrase is wrong, or this is no key" if secret else "this is no private key in PEM"
        raise UsageError(what, where=str(path), next_step="`hangdrill keygen` makes one") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError("this is no Ed25519 key", where=str(path), next_step="`hangdrill keygen` makes one")
    return key


def _read_public(path: Path) -> "SSlibKey":
    _need_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    hint = "name the .pub file that `hangdrill keygen` wrote"
    try:
        key = load_pem_public_key(_read(path, "the public key"))
    except UsageError:
        raise
    except Exception as error:
        raise UsageError("this is no public key in PEM", where=str(path), next_step=hint) from error
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError("this is no Ed25519 key", where=str(path), next_step=hint)
    return SSlibKey.from_crypto(key)


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {what}: {error.strerror}", where=str(path)) from error


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError as error:
        raise UsageError("the file is there already", where=str(path), next_step="name another one") from error
    except OSError as error:
        raise MachineError(f"cannot write: {error.strerror}", where=str(path), next_step="check the path") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise MachineError(f"cannot write: {error.strerror}", where=str(path), next_step="free some space") from error


def _need_library() -> None:
    """securesystemslib with cryptography: the extra `sign`."""
    for name in ("cryptography", "securesystemslib"):
        if importlib.util.find_spec(name) is None:
            hint = "install it beside hangdrill: pip install 'hangdrill[sign]'"
            raise MachineError(f"signing needs {name}, which is not installed", next_step=hint)
