"""Writes the dumps of a hung job of any size, into a cache outside the repository, as torch's recorder would have.

    python benchmarks/make_dumps.py --ranks 1024 --entries 2000            # a sharded (FSDP2) job
    python benchmarks/make_dumps.py --ranks 1024 --flavour pipeline        # sends and receives along stages
    python benchmarks/make_dumps.py --ranks 1024 --distinct                # no two files number their strings alike
    python benchmarks/make_dumps.py --clean                                # away with all of them

The cache is $XDG_CACHE_HOME/hangdrill-benchmarks, or ~/.cache/hangdrill-benchmarks. A set that was interrupted is
continued, a finished one used again. Beside the dumps stands truth.json: who is the culprit.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from scale.dumps import rank_dump_bytes
from scale.jobs import FLAVOURS, SIDE, culprit_of

__all__ = ["DumpSet", "cache_dir", "make"]

PREFIX = "comm_lib_trace_rank_"
EDITION = 2  # a change of what is written is a new number: older sets are then written again


class DumpSet(NamedTuple):
    """Which dumps to write."""

    ranks: int
    entries: int = 2000
    flavour: str = "fsdp"
    distinct: bool = False

    @property
    def name(self) -> str:
        return f"{self.flavour}{'-distinct' if self.distinct else ''}-{self.ranks}x{self.entries}"

    def file(self, rank: int) -> bytes:
        return rank_dump_bytes(self.flavour, rank, self.ranks, self.entries, distinct=self.distinct)

    def truth(self) -> dict[str, object]:
        return {**self._asdict(), "edition": EDITION, "culprits": [culprit_of(self.ranks)]}


def cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hangdrill-benchmarks"


def make(wanted: DumpSet, cache: Path, *, jobs: int | None = None, free_bytes: int = 2**30) -> Path:
    """The directory of the dumps, written now unless they are there; refuses to leave less than `free_bytes`."""
    home = cache / wanted.name
    dumps, truth = home / "dumps", home / "truth.json"
    begun = home / "begun.json"
    text = json.dumps(wanted.truth())
    if truth.is_file() and truth.read_text() == text:
        return dumps
    if not begun.is_file() or begun.read_text() != text:
        shutil.rmtree(home, ignore_errors=True)
        dumps.mkdir(parents=True)
        begun.write_text(text)
    missing = [rank for rank in range(wanted.ranks) if not (dumps / f"{PREFIX}{rank}").is_file()]
    size = len(wanted.file(0)) * len(missing)
    print(f"{wanted.name}: {len(missing)} files, {size / 1e6:,.0f} MB, into {dumps}", flush=True)
    if size + free_bytes > shutil.disk_usage(home).free:
        raise SystemExit(f"{wanted.name}: not enough room in {cache}; another place: XDG_CACHE_HOME")
    with multiprocessing.Pool(jobs or os.cpu_count()) as pool:
        for _ in pool.imap_unordered(partial(write_file, wanted, home), missing, chunksize=8):
            pass
    truth.write_text(text)
    return dumps


def write_file(wanted: DumpSet, home: Path, rank: int) -> None:
    """One whole file, or none: it gets its name last."""
    part = home / f"{rank}.part"
    part.write_bytes(wanted.file(rank))
    part.replace(home / "dumps" / f"{PREFIX}{rank}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024, help=f"a multiple of {SIDE}, {2 * SIDE} or more")
    parser.add_argument("--entries", type=int, default=2000, help="of each ring buffer")
    parser.add_argument("--flavour", choices=sorted(FLAVOURS), default="fsdp")
    parser.add_argument("--distinct", action="store_true")
    parser.add_argument("--clean", action="store_true", help="remove the whole cache, write nothing")
    given = parser.parse_args()
    if given.clean:
        shutil.rmtree(cache_dir(), ignore_errors=True)
        return
    if given.ranks % SIDE or given.ranks < 2 * SIDE:
        parser.error(f"--ranks: a multiple of {SIDE}, {2 * SIDE} or more")
    began = time.monotonic()
    dumps = make(DumpSet(given.ranks, given.entries, given.flavour, given.distinct), cache_dir())
    print(f"{dumps} ({time.monotonic() - began:.1f} s)")


if __name__ == "__main__":
    main()
