"""The quick reading of whole dumps gives what the walk gives, for everything, or it leaves the file to the walk."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_pickles import DATA, entry, plain
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdrill.model.dump import RankDump
from hangdrill.recorder import DumpError, parse_dump, templates, whole_pickle
from hangdrill.recorder.dump_shape import ShapeReader

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from scale.dumps import rank_dump_bytes
from scale.torch_pickle import dump_bytes


@pytest.fixture(autouse=True, scope="module")
def small_files_too() -> Iterator[None]:
    """The quick way is also gone with the small files of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_pickle, "MIN_BYTES", 0)
        yield


RAW = sorted([*DATA.glob("gloo/*/fr_*"), *DATA.glob("nvrx/*/_dump_*"), *DATA.glob("h200/*/fr_*")])
NUMBERS = st.one_of(st.integers(-3, 300), st.integers(0, 70_000), st.integers(2**31 - 2, 2**40))
ENTRIES = st.builds(
    entry,
    record_id=NUMBERS,
    collective_seq_id=NUMBERS,
    p2p_seq_id=NUMBERS,
    op_id=NUMBERS,
    is_p2p=st.booleans(),
    time_created_ns=NUMBERS,
    time_discovered_started_ns=st.one_of(st.none(), NUMBERS),
    time_discovered_completed_ns=st.one_of(st.none(), NUMBERS),
    state=st.sampled_from(["scheduled", "started", "completed"]),
    retired=st.booleans(),
    profiling_name=st.sampled_from(["nccl2:all_reduce", "gloo:send 0->1", "op_id", "nccl:recv 1<-?"]),
    process_group=st.sampled_from([("0", "default_pg"), ("op_id", "record_id"), ("1", "thread_id"), ("tp", "tp")]),
    input_sizes=st.sampled_from([[], [[4]], [[4], [70_000, 2]]]),
    thread_id=st.sampled_from(["1", "22", "op_id"]),
    thread_name=st.sampled_from(["pt_autograd_0", "collective_seq_id"]),
)


def both_ways(data: bytes) -> tuple[RankDump | str, RankDump | str]:
    """What is read, with the quick way and without it; errors as text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hangdrill.recorder.reader.read_whole", lambda *_: None)
        slow = attempt(data)
    return attempt(data), slow


def attempt(data: bytes) -> RankDump | str:
    try:
        return parse_dump(data, rank=3)
    except DumpError as problem:
        return str(problem)


def is_read_quickly(data: bytes) -> bool:
    return whole_pickle.read_whole(data, ShapeReader(0, "")) is not None


@pytest.mark.parametrize("path", RAW, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_real_dumps_are_read_alike(path: Path) -> None:
    quick, slow = both_ways(path.read_bytes())
    assert quick == slow


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("flavour", ["fsdp", "pipeline"])
def test_the_dumps_of_a_job_are_read_alike_and_quickly(flavour: str, distinct: bool) -> None:
    """Ranks of other groups, phases and numberings one after another, so that templates of one meet the others."""
    for rank in (0, 1, 8, 17, 19, 20, 31):
        data = rank_dump_bytes(flavour, rank, 32, 400, distinct=distinct)
        quick, slow = both_ways(data)
        assert quick == slow
        assert is_read_quickly(data)


def test_templates_are_used_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second rank of a group needs the walk for no entry but those whose text is new."""
    parse_dump(rank_dump_bytes("fsdp", 8, 32, 400, distinct=False), rank=8)
    walked = []
    walk = templates.walk_part
    monkeypatch.setattr(templates, "walk_part", lambda *args: walked.append(args) or walk(*args))
    parse_dump(rank_dump_bytes("fsdp", 9, 32, 400, distinct=False), rank=9)
    assert len(walked) < 10


@settings(max_examples=150, deadline=None)
@given(st.lists(ENTRIES, min_size=1, max_size=12), st.integers(1, 4))
def test_any_entries_are_read_alike(entries: list[dict[str, Any]], times: int) -> None:
    quick, slow = both_ways(dump_bytes(plain(*(entries * times))))
    assert quick == slow


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_damaged_dumps_are_read_alike(source: random.Random) -> None:
    data = bytearray(rank_dump_bytes("fsdp", source.randrange(32), 32, 40, distinct=False))
    for _ in range(source.randint(1, 3)):
        data[source.randrange(len(data))] = source.choice([0, 0x28, 0x68, 0x75, 0x65, 0x2E, source.randrange(256)])
    whole = bytes(data[: source.choice([len(data), source.randrange(len(data))])])
    quick, slow = both_ways(whole)
    assert quick == slow


@pytest.mark.parametrize(
    "change",
    [
        {"frames": [{"name": "step", "filename": "other.py", "line": 7}]},
        {"profiling_name": "nccl:all_gathr"},
        {"process_group": ("0", "another_pg")},
        {"state": "scheduled"},
        {"input_dtypes": ["Doubl"], "output_dtypes": ["Doubl"]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_text_that_differs_behind_equal_numbers_is_not_taken_from_another_file(change: dict[str, Any]) -> None:
    """Both files number their texts alike, so that the entries after the first are equal byte by byte."""
    parse_dump(dump_bytes(plain(*[entry(record_id=number) for number in range(6)])), rank=0)
    data = dump_bytes(plain(*[entry(record_id=number, **change) for number in range(6)]))
    quick, slow = both_ways(data)
    assert quick == slow
    assert is_read_quickly(data)


def test_what_a_template_never_saw_is_read_by_the_walk() -> None:
    """An opcode that templates do not know, in the middle of entries that they do."""
    entries = [entry(record_id=number) for number in range(6)]
    entries[3]["extra"] = "x" * 10_000
    quick, slow = both_ways(dump_bytes(plain(*entries)))
    assert quick == slow
    assert not isinstance(quick, str)


def test_negative_numbers_are_refused_alike() -> None:
    entries = [entry(record_id=number, time_created_ns=5) for number in range(6)]
    entries[4]["time_created_ns"] = -5
    quick, slow = both_ways(dump_bytes(plain(*entries)))
    assert quick == slow
    assert "expected an integer from 0, got -5" in str(quick)


def test_templates_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MAX_TEMPLATES", 10)
    for rank in range(4):
        data = rank_dump_bytes("fsdp", rank, 32, 300, distinct=True)
        assert both_ways(data)[0] == both_ways(data)[1]
    assert whole_pickle._templates().count < 1000
