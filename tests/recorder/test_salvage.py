"""A dump that is cut or damaged anywhere gives the entries before that byte, or one clear error."""

import contextlib
import pickle
import random

import pytest
from hostile_pickles import DATA, text
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdrill.recorder import DumpError, parse_dump

SMALL = (DATA / "h200" / "nccl-collector" / "fr_0").read_bytes()
STACKS = (DATA / "h200" / "legacy-pipeline-stall" / "fr_1").read_bytes()
OLD = (DATA / "nvrx" / "lock_gil_1st" / "_dump_0").read_bytes()
ALL = (SMALL, STACKS, OLD)


@pytest.mark.parametrize(("data", "step"), [(SMALL, 1), (STACKS, 5), (OLD, 5)], ids=["nccl2", "with-stacks", "2.9"])
def test_every_prefix_of_a_real_dump_gives_the_entries_before_the_cut(data: bytes, step: int) -> None:
    whole = parse_dump(data, rank=0).operations
    saved = -1
    for size in range((len(data) - 1) % step, len(data), step):
        try:
            dump = parse_dump(data[:size], rank=0)
        except DumpError:
            assert saved == -1  # only before the first key is known
            continue
        assert dump.salvaged
        assert dump.cut_at_byte == size
        assert dump.operations == whole[: len(dump.operations)]
        assert saved <= len(dump.operations)
        saved = len(dump.operations)
    assert saved == len(whole)


def test_a_file_whose_end_is_zeros_gives_what_was_written() -> None:
    size = len(SMALL) // 2
    dump = parse_dump(SMALL[:size] + bytes(4096), rank=0)
    assert dump.operations == parse_dump(SMALL[:size], rank=0).operations
    assert dump.operations


@settings(max_examples=400, derandomize=True, database=None, deadline=None)
@given(st.sampled_from(ALL), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_mutated_dump_is_read_or_refused(data: bytes, changes: list[tuple[int, int]]) -> None:
    mutated = bytearray(data)
    for at, value in changes:
        mutated[at % len(mutated)] = value
    read(bytes(mutated))


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", b"\x80\x02", b"\x80\x04}(", b"{"]))
def test_any_bytes_are_read_or_refused(data: bytes, start: bytes) -> None:
    read(start + data)


def test_pieces_of_dumps_in_any_order_are_read_or_refused() -> None:
    dice = random.Random(7)
    for _ in range(300):
        cuts = sorted(dice.sample(range(2, len(SMALL)), 4))
        pieces = [SMALL[a:b] for a, b in zip([2, *cuts], [*cuts, len(SMALL)], strict=True)]
        dice.shuffle(pieces)
        read(SMALL[:2] + b"".join(pieces))


def read(data: bytes) -> None:
    """A dump, or one clear error; any other exception fails the test."""
    with contextlib.suppress(DumpError):
        parse_dump(data, rank=0)


def test_a_dump_cut_before_its_version_is_salvaged_all_the_same() -> None:
    dump = parse_dump(b"\x80\x02}(" + text("pg_config") + b"}" + text("version"), rank=0)
    assert (dump.version, dump.salvaged, dump.operations) == ((), True, ())


def test_a_whole_dump_is_not_called_salvaged() -> None:
    """The negative control."""
    assert not parse_dump(SMALL, rank=0).salvaged
    assert pickle.loads(SMALL)["version"] == "2.10"
