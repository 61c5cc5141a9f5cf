"""The command line of a canary job. Imports no torch."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from hangdrill.rank.canary.turns import PATIENCE_S, SIDES

__all__ = ["PARTS", "Options", "parse_options"]

PARTS = (
    "groups", "latency", "p2p", "dp", "fsdp", "tp", "pp", "2d", "several", "checkpoint", "foreign", "recover",
)  # fmt: skip
"""In the order in which they run; "foreign" and "recover" end what the process can still do, so they are last."""
PLANTS = ("missing", "late", "value")


@dataclass(frozen=True)
class Options:
    """sizes_bytes: of the messages that are timed. limit_s: of one part, after which the process writes its stacks and
    ends. plants: mistakes made on purpose, "missing:RANK", "late:RANK" or "value:RANK=TEXT".
    go: a file that is waited for once torch is imported, so that a job can be made ready while another one measures.
    meet: where the ranks wait for each other, in files or, over several nodes, in the store.
    turns: directory of the files by which two jobs take turns; side: which of the two this one is;
    patience_s: of all its waits for the other one.
    peer: the rank with which rank 0 exchanges messages; over several nodes the first one of another node."""

    out: Path
    backend: str
    parts: tuple[str, ...]
    bind: str
    timeout_s: float
    limit_s: float
    steps: int
    sizes_bytes: tuple[int, ...]
    groups: int
    seed: int
    plants: tuple[str, ...]
    go: Path | None
    turns: Path | None
    side: str
    patience_s: float
    meet: str
    peer: int


def parse_options() -> Options:
    """Read the command line; ends with 2 and a message when it is not understood."""
    parser = argparse.ArgumentParser(prog="hangdrill.rank.canary")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--parts", type=_parts, default=("groups", "latency", "p2p"))
    parser.add_argument("--bind", choices=("explicit", "derived", "none", "first"), default="explicit")
    parser.add_argument("--timeout-s", type=float, default=60.0)
    parser.add_argument("--limit-s", type=float, default=120.0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--sizes-bytes", type=_sizes, default=(4096, 4 << 20))
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plant", dest="plants", type=_plant, action="append", default=[])
    parser.add_argument("--go", type=Path)
    parser.add_argument("--turns", type=Path)
    parser.add_argument("--side", choices=SIDES, default=SIDES[0])
    parser.add_argument("--patience-s", type=float, default=PATIENCE_S)
    parser.add_argument("--meet", choices=("files", "store"), default="files")
    parser.add_argument("--peer", type=int, default=1)
    given = vars(parser.parse_args())
    return Options(**{**given, "plants": tuple(given["plants"])})


def _parts(text: str) -> tuple[str, ...]:
    named = [part for part in text.split(",") if part]
    for part in named:
        if part not in PARTS:
            raise argparse.ArgumentTypeError(f"there is no part {part!r}; there are {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in named)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _plant(text: str) -> str:
    if text.split(":", maxsplit=1)[0] not in PLANTS:
        raise argparse.ArgumentTypeError(f"there is no such mistake {text!r}; there are {', '.join(PLANTS)}")
    return text
