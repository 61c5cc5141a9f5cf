"""Bytes -> RankDump: decides what sort of file it is and has it read.

One call reads, checks and condenses one file and shares nothing with other calls, so that it can run in a worker
process.
"""

import re
from pathlib import Path

import msgspec

from hangdrill.model.dump import DumpFormat, RankDump
from hangdrill.recorder.dump_shape import ShapeReader, read_shape
from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.json_salvage import close_json
from hangdrill.recorder.local import read_regular
from hangdrill.recorder.names import rank_in_name
from hangdrill.recorder.pickle_walk import MAX_DUMP_BYTES, walk_pickle
from hangdrill.recorder.printable import printable
from hangdrill.recorder.whole_pickle import read_whole

__all__ = ["parse_dump", "read_dump"]

_AT_BYTE = re.compile(r"\(byte (\d{1,12})\)")
_NEXT = "check that this file is a flight-recorder dump"


def read_dump(path: Path, *, rank: int | None = None) -> RankDump:
    """The dump in a file; `rank` defaults to the one in the file's name. Raises DumpError."""
    if rank is None:
        rank = rank_in_name(path.name)
        if rank is None:
            raise DumpError(
                "the name does not say which rank's dump this is", where=printable(str(path)), next_step="give its rank"
            )
    return parse_dump(read_regular(path, MAX_DUMP_BYTES), rank=rank, path=printable(str(path)))


def parse_dump(data: bytes, *, rank: int, path: str = "") -> RankDump:
    """The dump in `data`, a recorder's pickle or the control plane's JSON. Raises DumpError."""
    where = f"rank {rank}, {path}" if path else f"rank {rank}"
    if not data:
        raise DumpError(
            "the file is empty", where=where, next_step="the rank died while it wrote, or the disk was full"
        )
    if data[:1] == b"\x80":
        reader = ShapeReader(rank, path)
        whole = read_whole(data, reader)
        if whole is not None:
            root, operations = whole
            return reader.dump(root, DumpFormat.PICKLE, operations=operations)
        tree = walk_pickle(data, where=where)
        return read_shape(
            tree.value,
            rank=rank,
            path=path,
            form=DumpFormat.PICKLE,
            open_ids=tree.open_ids,
            cut_at_byte=tree.cut_at_byte,
            reason=tree.reason,
        )
    if data[:64].lstrip()[:1] == b"{":
        return _parse_json(data, rank, path, where)
    raise DumpError(f"it is neither a pickle nor JSON (it begins {data[:8]!r})", where=where, next_step=_NEXT)


def _parse_json(data: bytes, rank: int, path: str, where: str) -> RankDump:
    if len(data) > MAX_DUMP_BYTES:
        raise DumpError(
            f"more than {MAX_DUMP_BYTES} bytes, as no dump has",
            where=where,
            next_step="check that this is a flight-recorder file",
        )
    try:
        root = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as problem:
        return _salvage_json(data, rank, path, where, problem)
    return read_shape(root, rank=rank, path=path, form=DumpFormat.JSON)


def _salvage_json(data: bytes, rank: int, path: str, where: str, problem: Exception) -> RankDump:
    """What is whole before the damage. The JSON of a dump is an object, so there is something to close."""
    at = int(match[1]) if (match := _AT_BYTE.search(str(problem))) else len(data)
    closed = None if isinstance(problem, RecursionError) else close_json(data[:at])
    try:
        root = None if closed is None else msgspec.json.decode(closed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        root = None
    if not root:
        raise DumpError(f"it is not whole JSON: {problem}", where=where, next_step="pull it again") from problem
    return read_shape(root, rank=rank, path=path, form=DumpFormat.JSON, cut_at_byte=at, reason="the file is cut")
