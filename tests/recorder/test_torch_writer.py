"""The benchmark's dumps are what torch writes: its writer gives real files back byte for byte."""

import contextlib
import io
import pickle
import pickletools
import sys
from pathlib import Path

import pytest
from hostile_pickles import DATA

from hangdrill import diagnose
from hangdrill.recorder import parse_dump

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from make_dumps import DumpSet, make
from scale.dumps import NUMBERINGS, rank_dump, rank_dump_bytes
from scale.torch_pickle import dump_bytes

RAW = sorted([*DATA.glob("raw/*/fr_*"), *DATA.glob("gloo/*/fr_*"), *DATA.glob("nvrx/*/_dump_*")])
FLAVOURS = [("fsdp", False), ("fsdp", True), ("pipeline", False), ("pipeline", True)]


@pytest.mark.parametrize("path", RAW, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_raw_dump_read_and_written_again_is_the_same_file(path: Path) -> None:
    raw = path.read_bytes()
    assert dump_bytes(pickle.loads(raw)) == raw  # our own files


def test_the_raw_dumps_hold_what_the_writer_must_know() -> None:
    opcodes: set[str] = set()
    for path in RAW:
        opcodes |= {opcode.name for opcode, _, _ in pickletools.genops(path.read_bytes())}
    assert {"LONG_BINPUT", "LONG_BINGET", "BININT", "BININT1", "BININT2", "LONG1", "TUPLE2", "NEWTRUE"} <= opcodes


def test_pythons_own_pickle_would_not_give_the_same_file() -> None:
    raw = RAW[0].read_bytes()
    assert pickle.dumps(pickle.loads(raw), protocol=2) != raw


@pytest.mark.parametrize(("flavour", "distinct"), FLAVOURS)
def test_a_made_dump_says_what_was_meant(flavour: str, distinct: bool) -> None:
    raw = rank_dump_bytes(flavour, 21, 32, 300, distinct=distinct)
    assert pickle.loads(raw) == rank_dump(flavour, 21, 32, 300, distinct=distinct)
    dump = parse_dump(raw, rank=21)
    assert (len(dump.operations), dump.salvaged) == (300, False)
    assert [entry["record_id"] for entry in pickle.loads(raw)["entries"]] == list(
        range(dump.operations[0].record_id, dump.operations[0].record_id + 300)
    )


@pytest.mark.parametrize(("flavour", "distinct"), FLAVOURS)
def test_the_truth_of_a_made_set_is_found(tmp_path: Path, flavour: str, distinct: bool) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        dumps = make(DumpSet(32, 250, flavour, distinct), tmp_path, jobs=1)
    assert [found.rank for found in diagnose(dumps).culprits] == [19]


def test_distinct_files_number_their_strings_differently() -> None:
    def numbers(rank: int, *, distinct: bool) -> bytes:
        raw = rank_dump_bytes("fsdp", rank, 1024, 500, distinct=distinct)
        at = raw.index(b"nccl2:_reduce_scatter_base")
        return raw[at + 26 : at + 31]

    assert NUMBERINGS > 1024
    assert len({numbers(rank, distinct=False) for rank in range(0, 16)}) == 1
    assert len({numbers(rank, distinct=True) for rank in range(0, 16)}) == 16


def test_an_interrupted_set_is_continued_and_another_edition_written_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = DumpSet(16, 50)
    dumps = make(wanted, tmp_path, jobs=1)
    lost = dumps / "comm_lib_trace_rank_3"
    whole = lost.read_bytes()
    lost.unlink()
    (dumps.parent / "truth.json").unlink()  # written last: not there when interrupted
    make(wanted, tmp_path, jobs=1)
    assert lost.read_bytes() == whole
    make(wanted, tmp_path, jobs=1)
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == [
        "fsdp-16x50: 16 files",
        "fsdp-16x50: 1 files",
    ]


def test_a_set_that_would_fill_the_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not enough room"):
        make(DumpSet(16, 50), tmp_path, jobs=1, free_bytes=2**60)
