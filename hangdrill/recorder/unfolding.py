"""What a pickle may come to in memory, bounded before a single value of it is made."""

from hangdrill.recorder.errors import DumpError

__all__ = ["MAX_UNFOLDED_BYTES", "MAX_UNFOLDED_RATIO", "check_unfolded"]

MAX_UNFOLDED_BYTES = 160 * 1024 * 1024
MAX_UNFOLDED_RATIO = 32
"""What a file may unfold to: this much, or so many bytes for each of its own. Real dumps unfold to 8 times their size
and are estimated at 20 to 29 times; files made to exhaust memory reach 50 to 240 times."""

_WEIGHTS = {
    b"]": 100, b"}": 240, b"(": 64, b"\x85": 64, b"\x86": 72, b"\x87": 80, b"\x94": 112, b"r": 130,
    b"N": 9, b"\x88": 9, b"\x89": 9, b")": 9,
}  # fmt: skip
"""Bytes of memory that an opcode of one byte can come to. Others come to less than 12 for each byte of their own."""


def check_unfolded(data: bytes, where: str) -> None:
    """Raise DumpError for a file that could unfold to far more than its size, before a single value is made.

    Every byte is taken for the opcode it could be, so that this is a bound from above and costs only a count.
    """
    size = len(data)
    if size * max(_WEIGHTS.values()) <= MAX_UNFOLDED_BYTES:
        return
    bound = size * 12 + sum(data.count(opcode) * weight for opcode, weight in _WEIGHTS.items())
    if bound > max(MAX_UNFOLDED_BYTES, MAX_UNFOLDED_RATIO * size):
        raise DumpError(
            f"{size} bytes could unfold to {bound}: it is made to exhaust memory, or no dump",
            where=where,
            next_step="find out who wrote this file",
        )
