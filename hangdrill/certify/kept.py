"""A part of a cell that has ended, kept as a file, so that --resume does not measure it again.

The file is written whole and holds a hash over itself: one that is cut, damaged, or of something else (`key`) counts as
none, and its part is measured again.
"""

import hashlib
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from hangdrill.drill.layout import write_json

__all__ = ["keep", "read_kept"]

Value = TypeVar("Value", bound=msgspec.Struct)


class _Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """key: of everything that the value depends on."""

    schema: Literal["hangdrill.kept/1"] = "hangdrill.kept/1"
    key: str
    sha256: str
    value: msgspec.Raw


def keep(path: Path, key: str, value: msgspec.Struct) -> None:
    """Write it whole, or not at all. Raises MachineError."""
    encoded = msgspec.json.encode(value)
    write_json(path, _Kept(key=key, sha256=_digest(key, encoded), value=msgspec.Raw(encoded)))


def read_kept(path: Path, key: str, kind: type[Value]) -> Value | None:
    """The value that was kept under this key; None when there is none that can be relied on."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Kept)
        value = msgspec.json.decode(found.value, type=kind)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError):
        return None
    good = found.key == key and found.sha256 == _digest(key, msgspec.json.encode(value))
    return value if good else None


def _digest(key: str, encoded: bytes) -> str:
    return hashlib.sha256(key.encode() + b"\0" + encoded).hexdigest()
