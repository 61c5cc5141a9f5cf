"""Files made by hand to tell the quick way from the walk, to poison the reading of others, to crash or to hang it."""

import multiprocessing
import struct
from collections.abc import Iterator

import pytest

from hangdrill.recorder import DumpError, parse_dump, reader, whole_pickle


@pytest.fixture(autouse=True, scope="module")
def small_files_too() -> Iterator[None]:
    """The quick way is also gone with the small files of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_pickle, "MIN_BYTES", 0)
        yield


def text(value: str) -> bytes:
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


HEAD = b"\x80\x02}(" + text("version") + text("2.10") + text("entries") + b"]("
END = b"eu."
KEYS = ["frames", "record_id", "collective_seq_id", "op_id", "time_created_ns", "profiling_name", "state", "retired"]


def entry(number: int, *, extra: bytes = b"", frames: bytes = b"](e", opening: bytes = b"}(") -> bytes:
    """Keys are memo 0 to 7, the two texts 50 and 51; the first entry stores them."""
    first = number == 0
    key = [text(name) + b"q" + bytes([at]) if first else b"h" + bytes([at]) for at, name in enumerate(KEYS)]
    values = [
        frames,
        b"K" + bytes([number]),
        b"K" + bytes([number + 1]),
        b"K" + bytes([number]),
        b"K" + bytes([9 + number]),
        text("nccl2:all_reduce") + b"q\x32" if first else b"h\x32",
        text("completed") + b"q\x33" if first else b"h\x33",
        b"\x88",
    ]
    return opening + b"".join(map(bytes.__add__, key, values)) + extra + b"u"


def entries(numbers: range) -> bytes:
    return b"".join(entry(number) for number in numbers)


def read(data: bytes, *, quickly: bool) -> object:
    with pytest.MonkeyPatch.context() as patch:
        if not quickly:
            patch.setattr(reader, "read_whole", lambda *_: None)
        try:
            return parse_dump(data, rank=0)
        except DumpError as problem:
            return str(problem)


@pytest.fixture(autouse=True)
def no_templates() -> Iterator[None]:
    whole_pickle._OF_THREAD.__dict__.clear()
    yield
    whole_pickle._OF_THREAD.__dict__.clear()


ODD = text("zz") + b"\x8a\x01\x05"  # an integer of one byte: the entry is read, but no template is made of it
OTHER_NAME = text("yy") + text("nccl2:broadcast") + b"q\x32"
CASES = {
    "text stored anew by an entry that makes no template": HEAD
    + entries(range(3)) + entry(3, extra=ODD + OTHER_NAME) + entry(4) + END,
    "a key twice": HEAD
    + b"".join(entry(i, extra=b"h\x02K" + bytes([i + 1 if i < 3 else 77])) for i in range(6)) + END,
    "a second list of entries behind the first": HEAD
    + entries(range(6)) + b"e" + text("entries") + b"](" + entry(1) + END,
    "an entry changed by a later one": HEAD
    + entry(0, opening=b"}qd(") + entry(1)
    + entry(2, extra=text("zz") + b"hd(h\x06" + text("scheduled") + b"h\x07\x89u") + END,
    "the dump's own dict changed by an entry": HEAD.replace(b"}(", b"}qc(", 1)
    + entries(range(2)) + entry(2, extra=text("zz") + b"hc(" + text("version") + text("2.9") + b"u") + END,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_both_ways_say_the_same(name: str) -> None:
    assert read(CASES[name], quickly=True) == read(CASES[name], quickly=False)


def with_frame(more: bytes = b"", *, line: int = 7, last: bytes = b"") -> bytes:
    frame = b"](}qf(" + text("name") + text("step") + text("filename") + text("t.py") + text("line")
    frame += b"K" + bytes([line]) + more + b"ue"
    again = b"".join(entry(number, frames=b"](hfe", extra=last * (number == 4)) for number in range(1, 5))
    return HEAD + entry(0, frames=frame) + again + END


def test_a_hostile_file_does_not_change_what_an_honest_one_says() -> None:
    """The hostile one changes its stored frame after templates were made of it: what they compare is then a lie."""
    honest, hostile = with_frame(), with_frame(line=99, last=text("zz") + b"hf(" + text("line") + b"K\x07u")
    alone = read(honest, quickly=True)
    whole_pickle._OF_THREAD.__dict__.clear()
    read(hostile, quickly=True)
    assert read(honest, quickly=True) == alone


def test_frames_that_contain_themselves_do_not_crash_the_second_file() -> None:
    data = with_frame(text("a") + b"hf")
    assert read(data, quickly=True) == read(data, quickly=True)  # RecursionError: `hangdrill diagnose` ends with 70


def test_frames_that_unfold_endlessly_are_not_compared_item_by_item() -> None:
    """Two files of 1.5 KB each: comparing their 2**40 items takes days. 5 s are given."""
    more = text("a0") + b"]q\x64"
    for level in range(1, 41):
        more += text(f"a{level}") + b"]q" + bytes([100 + level]) + b"(" + (b"h" + bytes([99 + level])) * 2 + b"e"
    # memo 102 is the frame's own number ("f"), which the levels must not take
    data = with_frame(more.replace(b"q\x66", b"q\xf0").replace(b"h\x66", b"h\xf0"))
    # In a process of its own: Ctrl-C and alarms are not seen inside of the comparison.
    process = multiprocessing.get_context("fork").Process(target=lambda: [parse_dump(data, rank=0) for _ in range(2)])
    process.start()
    process.join(timeout=5)
    is_over = process.exitcode is not None
    process.kill()
    process.join()
    assert is_over
