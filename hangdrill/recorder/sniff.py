"""What a file is by its first bytes. A hint only: it decides whether a file with a vague name is worth reading."""

from typing import Literal

__all__ = ["HEAD_BYTES", "Kind", "kind_of"]

HEAD_BYTES = 4096

Kind = Literal["dump", "page", "other", "unknown"]
"""page: saved from torch's debug server; it holds the JSON of all ranks. unknown: it could not be looked into."""

_KEYS = (b'"version"', b'"entries"', b'"pg_config"', b'"pg_status"', b'"comm_lib_version"', b'"nccl_version"')
_DICT = b"}"
_FRAME = 0x95


def kind_of(head: bytes) -> Kind:
    """The kind, by the first HEAD_BYTES."""
    if head[:1] == b"\x80":
        start = 11 if head[2:3] == bytes([_FRAME]) else 2
        return "dump" if head[start : start + 1] in {_DICT, b""} else "other"
    text = head.lstrip()
    if text[:1] == b"{":
        return "dump" if any(key in text for key in _KEYS) else "other"
    if text[:1] == b"<" and b"<title>FlightRecorder" in text:
        return "page"
    return "other"
