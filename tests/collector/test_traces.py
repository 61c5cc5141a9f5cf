"""The control plane's JSON: what is pending in it, and what only looks so."""

import json

import pytest
from fake_plane import HEALTHY, NO_RECORDER, operation, trace

from hangdrill.collector.control_plane import NoAnswer, Silence
from hangdrill.collector.sources import LEGACY, RecorderSource, sources_of
from hangdrill.collector.traces import Health, OperationKey, read_health, read_trace

GLOO = RecorderSource(backend="gloo")


def test_only_what_is_neither_retired_nor_completed_is_pending():
    body = trace(
        operation(1, retired=True), operation(2, state="completed"), operation(3), operation(4, state="started")
    )
    found = read_trace(body, GLOO)
    assert [op.key.sequence for op in found.pending] == [3, 4]
    assert not found.empty


def test_a_pending_operation_is_named_as_people_name_it():
    (found,) = read_trace(trace(operation(4, profiling_name="nccl2:all_reduce")), GLOO).pending
    assert (found.title, found.timeout_ms, found.key) == (
        "all_reduce #4 of default_pg",
        5000,
        OperationKey(group_name="0", p2p=False, sequence=4),
    )


def test_a_group_without_a_description_is_named_by_its_name():
    (found,) = read_trace(trace(operation(2, process_group=["7", "undefined"])), GLOO).pending
    assert found.title == "all_reduce #2 of group 7"


def test_point_to_point_has_a_number_space_of_its_own():
    entry = operation(0, is_p2p=True, p2p_seq_id=9, profiling_name="nccl2:send 0->1")
    (found,) = read_trace(trace(entry), GLOO).pending
    assert (found.key, found.name) == (OperationKey(group_name="0", p2p=True, sequence=9), "send 0->1")


def test_parts_of_a_batched_p2p_in_legacy_are_pending_only_beyond_the_groups_own_count():
    part = operation(0, is_p2p=True, p2p_seq_id=3, op_id=3)
    root = json.loads(trace(part))
    for completed, pending in (("3", 0), ("2", 1)):
        root["pg_status"]["0"]["last_completed_collective"] = completed
        assert len(read_trace(json.dumps(root).encode(), LEGACY).pending) == pending
    assert len(read_trace(json.dumps(root).encode(), GLOO).pending) == 1


def test_an_idle_recorder_leaves_entries_out_and_is_not_empty():
    found = read_trace(trace(enqueued=54), GLOO)
    assert (found.empty, found.pending, found.enqueued) == (False, (), 54)


def test_the_wrong_backends_answer_is_empty():
    assert read_trace(NO_RECORDER, GLOO).empty


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff\xfe", b'{"entries": 3}', b"[" * 5000, b'{"pg_status": []}'])
def test_anything_but_a_trace_is_garbled(body):
    with pytest.raises(NoAnswer) as caught:
        read_trace(body, GLOO)
    assert caught.value.cause is Silence.GARBLED


def test_health_is_torchs_own_opinion():
    assert read_health(HEALTHY) == Health(healthy=True)
    sick = b'{"healthy":false,"unhealthy_backends":["nccl2"]}'
    assert read_health(sick) == Health(healthy=False, unhealthy_backends=("nccl2",))
    with pytest.raises(NoAnswer):
        read_health(b"pong")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["gloo"], ["gloo"]),
        (["nccl"], ["nccl2", "nccl", "nccl-legacy"]),
        (["cpu:gloo,cuda:nccl2"], ["gloo", "nccl2", "nccl"]),
        (["nccl", "nccl2"], ["nccl2", "nccl", "nccl-legacy"]),
        (["mine"], ["mine"]),
        ([], ["gloo", "nccl2", "nccl", "nccl-legacy", "nccl-lazy"]),
    ],
)
def test_a_requested_name_stands_for_the_recorders_it_may_be(names, expected):
    assert [source.backend for source in sources_of(names)] == expected


def test_legacy_has_a_handler_of_its_own():
    assert LEGACY.trace_handler == "dump_nccl_trace_json"
    assert LEGACY.trace_parameters == {"onlyactive": "true"}
    assert GLOO.trace_handler == "fr_trace_json"
    assert GLOO.trace_parameters == {"backend": "gloo"}
