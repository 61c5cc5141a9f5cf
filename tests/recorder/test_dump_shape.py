"""Plain values become a RankDump, field by field; an error names the key it was found at."""

import json
from typing import Any

import pytest
from hostile_pickles import entry, pickled, plain

from hangdrill.model.dump import DumpFormat, Frame, Group, GroupStatus, Operation, OperationState
from hangdrill.recorder import DumpError, parse_dump
from hangdrill.recorder.dump_shape import read_shape
from hangdrill.recorder.plain_values import MAX_TEXT

OPERATION = Operation(
    record_id=0,
    pg_id=0,
    group_name="0",
    group_desc="default_pg",
    name="all_reduce",
    backend="nccl",
    sequence=1,
    p2p=False,
    op_id=1,
    state=OperationState.COMPLETED,
    retired=True,
    created_ns=1_795_969_082_061_724_428,
    completed_ns=1_795_969_082_067_347_398,
    input_sizes=((4, 2),),
    input_dtypes=("Float",),
    output_sizes=((4, 2),),
    output_dtypes=("Float",),
    timeout_ms=10_000,
    frames=(Frame(filename="train.py", line=7, name="step"),),
)


def operation(**changes: Any) -> Operation:
    return parse_dump(pickled(entry(**changes)), rank=0).operations[0]


def test_every_field_of_a_pickle_arrives() -> None:
    dump = parse_dump(pickled(entry()), rank=3, path="fr_3")
    assert (dump.rank, dump.path, dump.format, dump.version) == (3, "fr_3", DumpFormat.PICKLE, (2, 10))
    assert dump.groups == (Group(name="0", desc="default_pg", ranks=(0, 1)),)
    assert dump.status == (GroupStatus(pg_id="0", last_enqueued=1, last_started=-1, last_completed=1),)
    assert dump.operations == (OPERATION,)
    assert dump.comm_lib_version == "2.30.7"
    assert not dump.only_active
    assert not dump.salvaged


def test_the_json_of_the_control_plane_says_the_same() -> None:
    value = plain(entry(process_group=["0", "default_pg"], time_discovered_started_ns=0, frames=None))
    value["pg_status"]["0"] = {key: str(number) for key, number in value["pg_status"]["0"].items()}
    dump = parse_dump(json.dumps(value).encode(), rank=0)
    want = parse_dump(pickled(entry(frames=None)), rank=0)
    assert dump.format is DumpFormat.JSON
    assert (dump.operations, dump.status, dump.groups) == (want.operations, want.status, want.groups)


@pytest.mark.parametrize(
    ("name", "backend", "bare", "peer"),
    [
        ("nccl2:all_reduce", "nccl2", "all_reduce", None),
        ("nccl2:recv 0<-1", "nccl2", "recv", 1),
        ("nccl:send 3->12", "nccl", "send", 12),
        ("nccl2:recv <-?", "nccl2", "recv", None),
        ("nccl-lazy:send ?->2", "nccl-lazy", "send", 2),
        ("all_reduce", "", "all_reduce", None),
        ("my backend: op", "", "my backend: op", None),
    ],
)
def test_profiling_names_are_taken_apart(name: str, backend: str, bare: str, peer: int | None) -> None:
    got = operation(profiling_name=name)
    assert (got.backend, got.name, got.peer) == (backend, bare, peer)


def test_a_send_counts_by_its_own_sequence() -> None:
    got = operation(profiling_name="nccl:send 0->1", is_p2p=True, collective_seq_id=0, p2p_seq_id=9)
    assert (got.p2p, got.sequence) == (True, 9)


def test_what_older_versions_lack_gets_its_default() -> None:
    lacking = ("is_p2p", "retired", "timeout_ms", "pg_id", "op_id", "input_sizes", "output_dtypes", "process_group")
    old = entry(**dict.fromkeys(lacking), collective_seq_id=None, seq_id=5, profiling_name="nccl:recv 0<-1")
    got = parse_dump(pickled(old, version="2.1", pg_status=None, nccl_version="2.20"), rank=0).operations[0]
    assert (got.p2p, got.retired, got.timeout_ms, got.pg_id, got.group_name) == (True, False, 0, -1, "")
    assert got.output_dtypes == got.input_sizes == ()


def test_a_later_minor_version_with_keys_nobody_knows_is_read() -> None:
    dump = parse_dump(pickled(entry(colour="red"), version="2.11", weather={}), rank=0)
    assert dump.version == (2, 11)
    assert len(dump.operations) == 1


def test_the_order_of_a_groups_ranks_is_kept() -> None:
    config = {"a": {"name": "a", "desc": "", "ranks": [3, 1]}, "b": {"name": "b", "desc": "", "ranks": ""}}
    assert [group.ranks for group in parse_dump(pickled(pg_config=config), rank=0).groups] == [(3, 1), ()]


@pytest.mark.parametrize(
    ("changes", "where", "what"),
    [
        ({"state": "strted"}, "entries[0].state", "expected scheduled, started or completed, got 'strted'"),
        ({"state": 1}, "entries[0].state", "got 1"),
        ({"is_p2p": "no"}, "entries[0].is_p2p", "expected true or false, got 'no'"),
        ({"retired": 2.5}, "entries[0].retired", "got 2.5"),
        ({"process_group": ("0",)}, "entries[0].process_group", "got 1 values"),
        ({"process_group": (0, "d")}, "entries[0].process_group[0]", "expected text, got 0"),
        ({"profiling_name": None}, "entries[0].profiling_name", "expected text, got None"),
        ({"record_id": -4}, "entries[0].record_id", "expected an integer from 0, got -4"),
        ({"record_id": "x"}, "entries[0].record_id", "expected an integer, got 'x'"),
        ({"op_id": 2**70}, "entries[0].op_id", "an integer beyond 64 bits"),
        ({"op_id": True}, "entries[0].op_id", "got True"),
        ({"collective_seq_id": None}, "entries[0].collective_seq_id", "expected an integer, got None"),
        ({"input_sizes": [4]}, "entries[0].input_sizes", "expected a list, got 4"),
        ({"input_dtypes": {"a": 1}}, "entries[0].input_dtypes", "got a dict"),
        ({"frames": ["x" * 90]}, "entries[0].frames[0]", "got 'xxx"),
        ({"frames": [{"line": []}]}, "entries[0].frames[0].line", "expected an integer, got a list"),
    ],
)
def test_an_error_ends_in_the_key_it_was_found_at(changes: dict[str, Any], where: str, what: str) -> None:
    with pytest.raises(DumpError) as caught:
        parse_dump(pickled(entry(**changes)), rank=3, path="fr_3")
    assert caught.value.where == f"{where} (rank 3, fr_3)"
    assert what in caught.value.what
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"version": 2.1}, "version"),
        ({"version": "two"}, "version"),
        ({"version": "3.0"}, "version"),
        ({"version": "1.5"}, "version"),
        ({"version": None}, "version"),
        ({"pg_config": []}, "pg_config"),
        ({"pg_config": {"0": 4}}, "pg_config.0"),
        ({"pg_config": {"0": {"ranks": [-1]}}}, "pg_config.0.ranks"),
        ({"pg_status": {"0": {"last_enqueued_collective": "x"}}}, "pg_status.0.last_enqueued_collective"),
        ({"entries": {}}, "entries"),
        ({"entries": [7]}, "entries[0]"),
        ({"comm_lib_version": 2}, "comm_lib_version"),
    ],
)
def test_so_does_an_error_outside_the_entries(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(DumpError) as caught:
        parse_dump(pickled(**changes), rank=0)
    assert caught.value.where == f"{where} (rank 0)"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "empty"),
        (b"hello", "neither a pickle nor JSON"),
        (b"\x80\x02N.", "expected a dict with version"),
        (b"\x80\x02}.", "expected a dict with version"),
        (b"\x80\x02}", "the file is cut at byte 3, before anything that could be saved"),
        (b"{}", "expected a dict with version"),
        (b'{"version": "2.10"', "not whole JSON"),
        (b'{"entries": ' + b"[" * 100_000, "not whole JSON"),
        (b'{"entries": "\xff"}', "not whole JSON"),
    ],
)
def test_what_is_no_dump_is_said_to_be_none(data: bytes, what: str) -> None:
    with pytest.raises(DumpError, match=what):
        parse_dump(data, rank=0)


def test_shared_values_are_read_once_so_that_small_files_stay_cheap() -> None:
    """Every entry the same one, with the same long list of the same frame: 4000 x 4000 frames, if they were copied."""
    frame = {"name": "f", "filename": "g", "line": 1}
    shared = entry(frames=[frame] * 4000)
    dump = parse_dump(pickled(*[shared] * 4000), rank=0)
    assert len(dump.operations) == 4000
    assert len(dump.operations.kinds) == 1
    assert dump.operations[0].frames[0] is dump.operations[0].frames[-1]


def test_a_value_inside_itself_ends_in_an_error_not_in_a_recursion() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(DumpError, match="expected an integer, got a list"):
        read_shape(plain(entry(input_sizes=endless)), rank=0, path="", form=DumpFormat.PICKLE)


def test_text_of_megabytes_is_cut_short() -> None:
    assert len(operation(profiling_name="x" * 10**6).name) == MAX_TEXT


def test_too_many_operations_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdrill.recorder.dump_shape.MAX_OPERATIONS", 1)
    with pytest.raises(DumpError, match="2 operations are more than 1"):
        parse_dump(pickled(entry(), entry(record_id=1)), rank=0)


def test_ranks_that_groups_share_are_read_once_and_counted_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand groups with one text of a hundred thousand ranks would be a billion members."""
    ranks = str(list(range(1000)))
    config = {str(number): {"name": str(number), "desc": "", "ranks": ranks} for number in range(100)}
    groups = parse_dump(pickled(pg_config=config), rank=0).groups
    assert groups[0].ranks is groups[99].ranks
    monkeypatch.setattr("hangdrill.recorder.dump_shape.MAX_MEMBERS", 99_999)
    with pytest.raises(DumpError, match="more than 99999 members together"):
        parse_dump(pickled(pg_config=config), rank=0)


def test_a_group_that_is_only_a_name_is_read() -> None:
    assert operation(process_group="7").group_name == "7"


def test_text_that_would_steer_a_terminal_is_written_out() -> None:
    got = operation(profiling_name="nccl:all\x1b[2Jreduce", process_group=("0\r", "d\n"))
    assert (got.name, got.group_name, got.group_desc) == ("all\\x1b[2Jreduce", "0\\x0d", "d\\x0a")


@pytest.mark.parametrize(
    ("value", "only_active"),
    [
        (plain(), True),  # it has done something (pg_status), and no entry says what
        (plain(pg_status={}), False),
        (plain(entry()), False),
        (plain(entry(state="scheduled", retired=False)), False),  # the first operation of all
        (plain(entry(record_id=7, state="scheduled", retired=False)), True),
        (plain(entry(record_id=7, state="scheduled", retired=False), entry(record_id=8)), False),
    ],
)
def test_a_history_of_active_operations_only_is_recognised(value: dict[str, Any], only_active: bool) -> None:
    dump = read_shape(value, rank=0, path="", form=DumpFormat.PICKLE)
    assert dump.only_active is only_active


def test_json_without_entries_is_a_list_of_no_active_operations() -> None:
    value = plain(pg_status={})
    del value["entries"]
    assert parse_dump(json.dumps(value).encode(), rank=0).only_active
