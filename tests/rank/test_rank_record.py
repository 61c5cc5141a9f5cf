"""The record of operations is the contract's file, and names stand for the operations they say."""

import stat
import struct

import pytest

from hangdrill.rank.opnames import DEFAULT_CODES, OpNames
from hangdrill.rank.orders import OrdersError
from hangdrill.rank.record import COLLECTIVES, LAST_CODE, LAST_NS, LAST_SLOT, P2P, LastOperation, Record


@pytest.fixture
def record(tmp_path):
    return Record(tmp_path / "rank_0.a0.ops")


def words_of(path):
    data = path.read_bytes()
    return struct.unpack(f"<{len(data) // 8}Q", data)


def test_the_file_has_the_layout_of_the_contract(record, tmp_path):
    record.words[record.base(1) + COLLECTIVES] = 7
    record.words[record.base(1) + P2P] = 5
    record.steps = 3
    words = words_of(tmp_path / "rank_0.a0.ops")
    assert words[:8] == (0x48444F5053000001, 8, 256, 3, 0, 0, 0, 0)
    assert words[8:16] == (0,) * 8
    assert words[16:18] == (7, 5)
    assert len(words) == 8 + 256 * 8


def test_only_the_owner_may_read_it(record, tmp_path):
    assert stat.S_IMODE((tmp_path / "rank_0.a0.ops").stat().st_mode) == 0o600


def test_the_last_operation_is_of_the_slot_entered_last(record):
    codes = frozenset({DEFAULT_CODES["SEND"], DEFAULT_CODES["RECV"]})
    assert record.last(codes) is None
    base = record.base(2)
    record.words[base + COLLECTIVES], record.words[base + P2P] = 4, 9
    record.words[base + LAST_CODE] = DEFAULT_CODES["SEND"]
    record.words[LAST_SLOT], record.words[LAST_NS] = 2, 1
    assert record.last(codes) == LastOperation(slot=2, code=DEFAULT_CODES["SEND"], sequence=9, p2p=True)


@pytest.mark.parametrize(
    ("op", "members"),
    [
        ("all_reduce", {"ALLREDUCE", "ALLREDUCE_COALESCED"}),
        ("all_to_all_single", {"ALLTOALL_BASE"}),
        ("all_to_all", {"ALLTOALL", "ALLTOALL_BASE"}),
        ("reduce", {"REDUCE"}),
        ("isend", {"SEND"}),
        ("barrier", {"BARRIER"}),
    ],
)
def test_a_name_stands_for_its_family_and_a_special_name_for_itself(op, members):
    assert OpNames().matching(op) == {DEFAULT_CODES[member] for member in members}


def test_no_name_stands_for_every_operation_that_a_recorder_shows():
    every = OpNames().matching(None)
    assert DEFAULT_CODES["SPLIT"] not in every
    assert {DEFAULT_CODES["SEND"], DEFAULT_CODES["ALLREDUCE"]} <= every


def test_an_unknown_operation_is_a_mistake_in_the_orders():
    with pytest.raises(OrdersError, match="no operation is called 'allreduce'"):
        OpNames().matching("allreduce")
