"""The files of keys: an Ed25519 pair in PEM, made and read. Every mistake is one error that names the file."""

import contextlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hangdrill.model.errors import MachineError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from securesystemslib.signer import SSlibKey

__all__ = ["key_id_of", "make_keys", "need_library", "read_private", "read_public"]

MOST_BYTES = 1 << 16
"""Of a key's file: a device, or the wrong file, has no end."""


def make_keys(private: Path, public: Path, *, passphrase: bytes | None = None) -> str:
    """Write a new key pair, PEM, the private one with mode 0600; its key id. Nothing is overwritten."""
    need_library()
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
    return str(read_public(public).keyid)


def read_private(path: Path, passphrase: Callable[[], bytes | None]) -> "Ed25519PrivateKey":
    """passphrase: asked for only when the key is encrypted."""
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


def read_public(path: Path) -> "SSlibKey":
    """With its id."""
    need_library()
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
        with path.open("rb") as file:
            return file.read(MOST_BYTES)
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


def need_library() -> None:
    """securesystemslib with cryptography: the extra `sign`."""
    for name in ("cryptography", "securesystemslib"):
        if importlib.util.find_spec(name) is None:
            hint = "install it beside hangdrill: pip install 'hangdrill[sign]'"
            raise MachineError(f"signing needs {name}, which is not installed", next_step=hint)
