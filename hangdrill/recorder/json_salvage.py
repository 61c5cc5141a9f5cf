"""Makes whole JSON of JSON that is cut: what was complete before the cut is kept, the piece at the cut is left out.

A dump is at most three levels of interest: the object, its lists and objects, and their members. So it is cut back to
the last member that is complete at the second level, and closed from the inside out.
"""

import re

__all__ = ["close_json"]

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_CLOSER = {b"{": b"}", b"[": b"]"}
_LEVEL = 2


def close_json(data: bytes) -> bytes | None:
    """The data up to the last complete member, closed; None when nothing is complete."""
    open_: list[bytes] = []
    safe: tuple[int, bytes] | None = None
    for match in _TOKEN.finditer(data):
        token = match[0]
        if token in _CLOSER:
            open_.append(_CLOSER[token])
            if len(open_) <= _LEVEL:
                safe = match.end(), b"".join(reversed(open_))
        elif token in {b"}", b"]"}:
            if not open_ or open_.pop() != token:
                break
            if not open_:
                return data[: match.end()]
            if len(open_) <= _LEVEL:
                safe = match.end(), b"".join(reversed(open_))
        elif token == b",":
            if len(open_) <= _LEVEL:
                safe = match.start(), b"".join(reversed(open_))
        elif token == b'"':  # text that has no end
            break
    return None if safe is None else data[: safe[0]] + safe[1]
