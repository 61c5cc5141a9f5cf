"""Bytes -> RankDump: decides what sort of file it is and has it read.

One call reads, checks and condenses one file and shares nothing with other calls, so that it can run in a worker
process.
"""

from pathlib import Path

import msgspec

from hangdrill.model.dump import DumpFormat, RankDump
from hangdrill.recorder.dump_shape import read_shape
from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.names import rank_in_name
from hangdrill.recorder.pickle_walk import MAX_DUMP_BYTES, walk_pickle

__all__ = ["parse_dump", "read_dump"]

_NEXT = "check that this file is a flight-recorder dump"


def read_dump(path: Path, *, rank: int | None = None) -> RankDump:
    """The dump in a file; `rank` defaults to the one in the file's name. Raises DumpError."""
    if rank is None:
        rank = rank_in_name(path.name)
        if rank is None:
            raise DumpError(
                "the name does not say which rank's dump this is", where=str(path), next_step="give its rank"
            )
    return parse_dump(_bytes_of(path), rank=rank, path=str(path))


def parse_dump(data: bytes, *, rank: int, path: str = "") -> RankDump:
    """The dump in `data`, a recorder's pickle or the control plane's JSON. Raises DumpError."""
    where = f"rank {rank}, {path}" if path else f"rank {rank}"
    if not data:
        raise DumpError(
            "the file is empty", where=where, next_step="the rank died while it wrote, or the disk was full"
        )
    if data[:1] == b"\x80":
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
    try:
        root = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise DumpError(f"it is not whole JSON: {problem}", where=where, next_step="pull it again") from problem
    return read_shape(root, rank=rank, path=path, form=DumpFormat.JSON)


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DUMP_BYTES + 1)
    except OSError as problem:
        raise DumpError(
            f"it cannot be read: {problem.strerror}",
            where=str(path),
            next_step="run hangdrill as the owner of the dumps",
        ) from problem
    return data
