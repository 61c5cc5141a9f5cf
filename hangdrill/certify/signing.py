"""Sign a receipt and read a signed one: Ed25519 in a DSSE envelope around an in-toto statement, by securesystemslib.

An envelope takes the signatures of several people; each signs the same bytes, and none replaces another.
The statement's subjects are the stacks (by the digest of their fingerprint) and the plan; its predicate is the receipt.
Nothing here looks at a clock or at a stack: that is `verifying.py`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from hangdrill.certify.key_files import need_library, read_private, read_public
from hangdrill.model.errors import UsageError
from hangdrill.model.receipt import Receipt

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner, SSlibKey

__all__ = [
    "PAYLOAD_TYPE",
    "PREDICATE_TYPE",
    "SignatureProblem",
    "Statement",
    "Subject",
    "add_signature",
    "can_sign",
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


def can_sign(private: Path, *, passphrase: Callable[[], bytes | None]) -> str:
    """Read the key, and nothing else: its id. Raises what signing would."""
    return str(_signer(private, passphrase).public_key.keyid)


def sign_receipt(receipt: Receipt, private: Path, *, passphrase: Callable[[], bytes | None]) -> bytes:
    """The envelope as a file holds it. passphrase: asked for only when the key is encrypted."""
    signer = _signer(private, passphrase)
    from securesystemslib.dsse import Envelope

    payload = msgspec.json.encode(Statement(subject=_subjects(receipt), predicate=receipt))
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return _file_bytes(envelope)


def add_signature(data: bytes, private: Path, *, passphrase: Callable[[], bytes | None]) -> bytes:
    """The same envelope with one more signature. UsageError when this key has signed it already; SignatureProblem."""
    signer = _signer(private, passphrase)
    envelope = _decode(data)
    _statement(envelope)  # nobody signs what cannot be read
    if signer.public_key.keyid in envelope.signatures:
        raise UsageError("this key has signed it already", where=str(private), next_step="name another key")
    envelope.sign(signer)
    return _file_bytes(envelope)


def open_envelope(data: bytes, *public: Path, threshold: int | None = None) -> Statement:
    """The statement, once `threshold` of the keys, or all, are proven to have signed it.

    SignatureProblem when it is not what was signed: one signature of a given key that does not fit is enough.
    """
    need_library()
    if not public:  # else nobody's signature would be enough
        raise UsageError("without a key nothing is proven", where="--key", next_step="name a public key")
    keys: dict[str, SSlibKey] = {}
    for path in public:
        key = read_public(path)
        if key.keyid in keys:  # else one person's signature would pass for that of two
            raise UsageError("the same key twice is one signature", where=str(path), next_step="name different keys")
        keys[key.keyid] = key
    wanted = _checked_threshold(threshold, len(keys))
    envelope = _decode(data)
    signed = [key for key in keys.values() if key.keyid in envelope.signatures]
    for key in signed:
        _prove(envelope, key)
    if len(signed) < wanted:
        missing = ", ".join(keyid[:16] for keyid in keys if keyid not in envelope.signatures)
        signers = ", ".join(keyid[:16] for keyid in envelope.signatures) or "nobody"
        count = f"{wanted} of these keys must have signed it, and {len(signed)} did: " if len(keys) > 1 else ""
        raise SignatureProblem(f"{count}it is not signed with this key: {missing} is wanted, {signers} signed it")
    return _statement(envelope)


def _checked_threshold(threshold: int | None, keys: int) -> int:
    if threshold is None:
        return keys
    if not 1 <= threshold <= keys:
        text = f"{threshold} signatures are wanted, of {keys} keys"
        raise UsageError(text, where="--threshold", next_step="name as many different keys with --key")
    return threshold


def _prove(envelope: "Envelope", key: "SSlibKey") -> None:
    from securesystemslib.exceptions import VerificationError

    try:
        envelope.verify([key], 1)
    except VerificationError as error:
        raise SignatureProblem("the signature does not fit: the receipt was changed after it was signed") from error


def _signer(private: Path, passphrase: Callable[[], bytes | None]) -> "CryptoSigner":
    need_library()
    from securesystemslib.signer import CryptoSigner

    return CryptoSigner(read_private(private, passphrase))


def signed_by(data: bytes) -> str:
    """The ids of the keys that an envelope names; it proves nothing. SignatureProblem when it is none."""
    need_library()
    return ", ".join(_decode(data).signatures)


def read_statement(data: bytes) -> Statement:
    """The statement, whoever signed it: for looking at it, never for trusting it. SignatureProblem when it is none."""
    need_library()
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
        whole = _file_bytes(envelope) == data and all(isinstance(keyid, str) for keyid in envelope.signatures)
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
    except (msgspec.DecodeError, RecursionError) as error:
        raise SignatureProblem(f"it holds no receipt that this hangdrill understands: {error}") from error
