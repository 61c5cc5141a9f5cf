"""The walk reads what recorders write, refuses what could run code, and is not made to exhaust anything."""

import os
import pickle
import resource
import struct

import pytest
from hostile_pickles import pickled, short_text, text

from hangdrill.recorder import DumpError, UnsafeDumpError
from hangdrill.recorder.pickle_walk import MAX_DEPTH, MAX_DUMP_BYTES, walk_pickle
from hangdrill.recorder.unfolding import MAX_UNFOLDED_BYTES

PLAIN = {
    "none": None,
    "true": True,
    "false": False,
    "numbers": [0, 255, 256, 65535, 65536, -1, 2**31, -(2**40), 2**62, 1.5],
    "texts": ["", "a" * 300, "ünï"],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "dict": {"a": {"b": [{"c": []}]}},
    "again": ["name", "name"],
    "one": [1],
}


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_read_as_pickle_reads_them(protocol: int) -> None:
    tree = walk_pickle(pickle.dumps(PLAIN, protocol=protocol))
    assert tree.value == PLAIN
    assert tree.cut_at_byte is None


def test_a_memo_of_any_index_is_read() -> None:
    """Also one that would make a list of 32 GB."""
    data = b"\x80\x02](K\x07r\xff\xff\xff\xffj\xff\xff\xff\xffe."
    assert walk_pickle(data).value == [7, 7]


def test_opcodes_that_only_other_writers_use_are_read() -> None:
    data = b"\x80\x02}(" + b"U\x01a" + b"G" + struct.pack(">d", 2.5) + text("b") + b"\x8d" + struct.pack("<Q", 1)
    assert walk_pickle(data + b"z" + b"u.").value == {"a": 2.5, "b": "z"}


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_would_run_code_is_refused_and_runs_none(protocol: int) -> None:
    data = pickle.dumps({"version": "2.10", "entries": [Evil()]}, protocol=protocol)
    with pytest.raises(UnsafeDumpError, match="find or run code") as caught:
        walk_pickle(data, where="fr_0")
    assert caught.value.where == "fr_0"


@pytest.mark.parametrize(
    "opcode",
    [
        b"cos\nsystem\n",
        b"\x93",
        b"ios\nsystem\n",
        b"o",
        b"\x81",
        b"\x92",
        b"R",
        b"b",
        b"P1\n",
        b"Q",
        b"\x82\x01",
        b"\x97",
    ],
)
def test_every_opcode_that_finds_names_calls_or_sets_state_is_refused(opcode: bytes) -> None:
    with pytest.raises(UnsafeDumpError):
        walk_pickle(b"\x80\x04}(" + short_text("a") + b"N" + opcode + b"u.")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x80\x02" + b"](" * (MAX_DEPTH + 1), "inside each other"),
        (b"\x80\x09}.", "protocol 9"),
        (b"\x80\x02\x00", "0x00 is no opcode"),
        (b"\x80\x02\x8a\xff" + b"\x01" * 255 + b".", "an integer of 255 bytes"),
        (b"\x80\x02h\x07.", "never stored"),
        (b"\x80\x02X\x01\x00\x00\x00\xff.", "not UTF-8"),
        (b"\x80\x02}q", "the file is cut"),
        (b"\x80\x02X\xff\xff\xff\xffabc.", "the file is cut"),
        (b"\x80\x02\x8d" + b"\xff" * 8 + b"abc.", "the file is cut"),
        (b"\x80\x02\x8c\xffabc.", "the file is cut"),
        (b"\x80\x02}K\x01K\x02s.", "a key that is not text"),
        (b"\x80\x02}]NsK\x01.", "a key that is not text"),
        (b"\x80\x02}(K\x01u.", "no dict"),
        (b"\x80\x02K\x01(NNu.", "no dict"),
        (b"\x80\x02K\x01(Ne.", "no list"),
        (b"\x80\x02Na.", "lacks its values"),
        (b"\x80\x02e.", "lacks its values"),
        (b"\x80\x02}(.", "in the middle of a value"),
        (b"\x80\x02NN.", "in the middle of a value"),
    ],
)
def test_damage_ends_the_walk_with_its_reason(data: bytes, reason: str) -> None:
    tree = walk_pickle(data)
    assert tree.cut_at_byte is not None
    assert reason in tree.reason


def test_a_cut_is_said_at_the_end_of_the_file_and_damage_where_it_is() -> None:
    data = pickled()
    assert walk_pickle(data[:-1]).cut_at_byte == len(data) - 1
    assert walk_pickle(data[:-1] + b"\x00").cut_at_byte == len(data) - 1
    assert walk_pickle(data[:20] + b"\x00" * 9).cut_at_byte == walk_pickle(data[:20] + b"\x00").cut_at_byte


def test_what_was_complete_before_the_cut_is_kept_and_what_was_open_is_marked() -> None:
    data = b"\x80\x02}(" + text("a") + b"](K\x01}(" + text("b") + b"K\x02" + text("c")
    tree = walk_pickle(data)
    assert tree.value == {"a": [1, {"b": 2}]}
    assert {id(tree.value), id(tree.value["a"]), id(tree.value["a"][1])} == tree.open_ids


def test_an_open_tuple_is_lost_with_the_cut() -> None:
    assert walk_pickle(b"\x80\x02}(" + text("a") + b"(K\x01").value == {}


def test_a_file_beyond_the_bound_is_refused() -> None:
    with pytest.raises(DumpError, match="more than a dump may have"):
        walk_pickle(bytes(MAX_DUMP_BYTES + 1))


def test_nothing_small_takes_much_memory_or_time() -> None:
    """A huge memo index, huge lengths, and values inside themselves, many times over."""
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    laughs = (
        b"\x80\x02" + b"".join(b"]q%c(" % i + (b"h%c" % max(i - 1, 0)) * 40 * bool(i) + b"e" for i in range(25)) + b"."
    )
    walk_pickle(b"\x80\x02\x8d" + b"\xff\xff\xff\xff\xff\xff\xff\x7f" + b"x" * 100)
    walk_pickle(b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b".")
    walk_pickle(b"\x80\x02]" + b"\x85" * 50_000 + b".")
    walk_pickle(laughs)
    itself = walk_pickle(b"\x80\x02]q\x00h\x00a.").value
    assert isinstance(itself, list)
    assert itself[0] is itself
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 100_000


@pytest.mark.parametrize(
    "filler",
    [b"]", b"}", b"]Na", b"}" + short_text("k") + b"Ns", b"N\x94", b")\x85"],
    ids=["lists", "dicts", "lists-of-one", "dicts-of-one", "memo", "tuples"],
)
def test_a_file_made_to_unfold_is_refused_before_a_value_is_made(filler: bytes) -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    data = b"\x80\x04](" + filler * (8 * 1024 * 1024 // len(filler)) + b"e."
    with pytest.raises(DumpError, match="made to exhaust memory"):
        walk_pickle(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 60_000


def test_a_real_history_of_any_length_is_not_refused() -> None:
    """The negative control: 12,000 operations with stacks, as a pickle of torch's and of Python's own."""
    from pathlib import Path

    path = Path(__file__).parents[1] / "data" / "dumps" / "h200" / "legacy-stall" / "fr_0"
    whole = pickle.loads(path.read_bytes())  # our own file
    whole["entries"] = [dict(whole["entries"][-1], record_id=number) for number in range(12_000)]
    for protocol in (2, 4):
        data = pickle.dumps(whole, protocol=protocol)
        assert len(data) * 240 > MAX_UNFOLDED_BYTES
        assert walk_pickle(data).cut_at_byte is None
