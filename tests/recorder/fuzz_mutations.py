"""Real dumps, and ways to spoil them. Mutation i of a seed is always the same, so that a finding can be repeated."""

import gzip
import io
import json
import pickle
import random
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Seed", "mutated", "seeds"]

DATA = Path(__file__).parents[1] / "data" / "dumps"
OPCODES = b"]})(.0Nea\x85\x86\x87\x94\x95\x89\x88JKMXhqrjtsu\x8a\x8c\x8d\x80GUcoibRPQ\x81\x92\x93\x82\x97"
NUMBERS = [b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\xff" * 8, b"\0" * 8, b"\x01\0\0\0"]
HOSTILE = [
    b"cos\nsystem\n", b"\x8c\x02os\x8c\x06system\x93", b"](" * 40, b"]q\0h\0a", b"(" * 50, b"}" * 200, b"\x94" * 200,
    b"h\0" * 200, b"\x85" * 100, b"X\xff\xff\xff\xff", b"\x8a\xff" + b"\xff" * 255, b"[" * 500, b'{"a":' * 200,
    b"1e999",
    b"-9" * 40, b"\\ud800", b"\0" * 300, b"\xff" * 50, b'"' * 9, b"null", b"\x1b[2J",
]  # fmt: skip


@dataclass(frozen=True)
class Seed:
    """A file to spoil, called as in an incident, and what stands beside it."""

    name: str
    data: bytes
    beside: tuple[tuple[str, bytes], ...] = ()


def seeds() -> tuple[Seed, ...]:
    """Real dumps of every sort: nccl2, legacy with stacks, 2.9, gloo; as pickle, as JSON, and in archives."""
    found = []
    for case, name, other in (
        ("h200/nccl-collector", "fr_0", "fr_1"),
        ("h200/legacy-pipeline-stall", "fr_1", "fr_0"),
        ("h200/torch211-stall", "fr_0", "fr_1"),
        ("nvrx/lock_gil_1st", "_dump_0", "_dump_1"),
        ("gloo/hold-rank-1-of-3", "fr_0", "fr_1"),
    ):
        data, beside = ((DATA / case / one).read_bytes() for one in (name, other))
        found.append(Seed(name, data, ((other, beside),)))
        found.append(Seed(f"{name}.json", _json(data), ((f"{other}.json", _json(beside)),)))
        if case.startswith("gloo"):
            found += [
                Seed("all.tar", _tar((name, data), (other, beside))),
                Seed("all.tar.gz", gzip.compress(_tar((name, data), (other, beside)))),
                Seed("all.zip", _zip((name, data), (other, beside))),
            ]
    raw = (DATA / "raw/one-rank-with-stacks/fr_0").read_bytes()  # as torch wrote it, so that templates are made of it
    return (*found, Seed("fr_0", raw, (("fr_1", raw),)))


def mutated(data: bytes, others: tuple[bytes, ...], dice: random.Random) -> bytes:
    """The data with one to four things wrong."""
    spoiled = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 4))):
        _spoil(spoiled, others, dice)
    return bytes(spoiled)


def _spoil(data: bytearray, others: tuple[bytes, ...], dice: random.Random) -> None:
    at = dice.randrange(len(data) + 1)
    end = min(len(data), at + dice.choice((1, 1, 2, 4, 8, 64, 512)))
    match dice.randrange(11):
        case 0:
            data[at:end] = bytes(dice.randrange(256) for _ in range(end - at))
        case 1 if at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        case 2:
            data[at : at + 1] = bytes([dice.choice(OPCODES)])
        case 3:
            data[at:at] = bytes([dice.choice(OPCODES)]) * dice.choice((1, 2, 50))
        case 4:
            del data[at:end]
        case 5:
            del data[at:]
        case 6:
            data[at:at] = data[at:end] * dice.choice((1, 2, 30))
        case 7:
            number = dice.choice(NUMBERS)
            data[at : at + len(number)] = number
        case 8:
            data[at:at] = dice.choice(HOSTILE)
        case 9:
            other = dice.choice(others)
            start = dice.randrange(len(other))
            data[at:end] = other[start : start + dice.choice((4, 64, 1000))]
        case _:
            data[at:end] = bytes(end - at)


def _json(data: bytes) -> bytes:
    return json.dumps(pickle.loads(data)).encode()  # our own file


def _tar(*files: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files:
            info = tarfile.TarInfo(f"host/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _zip(*files: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files:
            packed.writestr(f"host/{name}", data)
    return out.getvalue()
