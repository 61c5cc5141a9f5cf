"""A `.metadata` that was damaged, or made to do harm: it is damaged with a reason, and takes no memory to speak of."""

import contextlib
import pickle
import struct
import tracemalloc

import pytest
from checkpoint_cases import save_alone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangdrill.certify import checkpoint_pickle
from hangdrill.certify.checkpoint_look import CheckpointState, look
from hangdrill.certify.checkpoint_metadata import MetadataError, read_metadata
from hangdrill.certify.checkpoint_pickle import PickleTrouble, check_pickle

MOST_BYTES = 64 << 20
HOSTILE = {
    "a memo index of four bytes": b"\x80\x04N" + b"r" + struct.pack("<I", 0x0FFF_FFFF) + b".",
    "a memo index of text": b"Np268435455\n.",
    "a memo index that is no number": b"Np-1\n.",
    "a text beyond the end": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"abc.",
    "bytes beyond the end": b"\x80\x05\x96" + struct.pack("<Q", 1 << 33) + b".",
    "a frame beyond the end": b"\x80\x04\x95" + struct.pack("<Q", 1 << 33) + b"N.",
    "no opcode": b"\x80\x04\xff.",
    "a thousand classes": b"".join(b"cm\nc%d\n0" % number for number in range(5000)) + b"N.",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole") / "checkpoint"
    save_alone(directory)
    return directory


def read(directory, data):
    """What is said of these bytes; the memory that it took at most is bounded."""
    (directory / ".metadata").write_bytes(data)
    tracemalloc.start()
    try:
        return read_metadata(directory / ".metadata")
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < MOST_BYTES, f"{peak} bytes"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_made_to_exhaust_memory_is_damaged_with_the_reason(tmp_path, name):
    with pytest.raises(MetadataError, match=r"readable pickle: (byte|what byte|.* truncated)|names more than") as told:
        read(tmp_path, HOSTILE[name])
    assert not told.value.is_cut
    assert not told.value.is_too_large


def test_such_a_file_makes_the_checkpoint_damaged(whole, tmp_path):
    (tmp_path / "__0_0.distcp").write_bytes((whole / "__0_0.distcp").read_bytes())
    (tmp_path / ".metadata").write_bytes(HOSTILE["a memo index of four bytes"])
    found = look(tmp_path)
    assert found.state is CheckpointState.DAMAGED
    assert "stores value 268435455" in found.problems[0]


@pytest.mark.parametrize("protocol", range(6))
def test_what_a_pickler_writes_is_let_through(protocol):
    shared = ["x" * 300, 1, -(1 << 70), 0.5, b"y" * 70_000, {"a": (1, 2, 3)}]
    check_pickle(pickle.dumps({"all": [shared, shared, [{} for _ in range(2000)]]}, protocol=protocol))


def test_what_torch_writes_is_let_through(whole):
    check_pickle((whole / ".metadata").read_bytes())
    assert read_metadata(whole / ".metadata").parts


def test_values_that_would_take_too_much_are_refused(monkeypatch):
    sets = b"\x8f0" * 10_000
    check_pickle(sets + b"N.")
    monkeypatch.setattr(checkpoint_pickle, "MOST_MADE_BYTES", 1_000_000)
    with pytest.raises(PickleTrouble, match="of memory") as told:
        check_pickle(sets + b"N.")
    assert told.value.is_too_large


def test_a_name_that_unfolds_without_end_is_not_unfolded(whole, tmp_path):
    """Thirty lists, each twice in the next: as text it has a thousand million entries."""
    name = []
    for _ in range(30):
        name = [name, name]
    stored = pickle.loads((whole / ".metadata").read_bytes())
    for index in stored.storage_data:
        object.__setattr__(index, "fqn", name)
    with pytest.raises(MetadataError, match="is no text"):
        read(tmp_path, pickle.dumps(stored))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_change_of_some_bytes_is_read_or_refused_within_bounds(whole, tmp_path_factory, data):
    origin = bytearray((whole / ".metadata").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(origin) - 1))
        origin[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.one_of(st.binary(max_size=6), st.sampled_from([b"r\xff\xff\xff\x0f", b"p99999999\n", b"\x8d", b"\x96"]))
        )
    directory = tmp_path_factory.getbasetemp() / "changed"
    directory.mkdir(exist_ok=True)
    with contextlib.suppress(MetadataError):
        read(directory, bytes(origin))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=200))
def test_any_bytes_are_refused_within_bounds(tmp_path_factory, data):
    directory = tmp_path_factory.getbasetemp() / "any"
    directory.mkdir(exist_ok=True)
    with pytest.raises(MetadataError):
        read(directory, b"\x80\x04" + data)


def test_a_file_that_is_cut_anywhere_is_never_taken_for_whole(whole, tmp_path):
    data = (whole / ".metadata").read_bytes()
    for end in range(0, len(data), max(1, len(data) // 60)):
        with pytest.raises(MetadataError) as told:
            read(tmp_path, data[:end])
        assert told.value.is_cut or data[:end].endswith(pickle.STOP)
