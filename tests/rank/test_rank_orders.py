"""The agent's orders: what is read, and that every mistake is named with its key."""

import json

import pytest

from hangdrill.rank.orders import FaultOrder, Identity, OrdersError, read_orders

MINIMUM = {"schema": "hangdrill.agent/1", "run_id": "r", "control": "/c", "sockets": "/s"}


def read(tmp_path, **keys):
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({**MINIMUM, **keys}))
    return read_orders(path)


def test_orders_without_a_fault_are_healthy(tmp_path):
    orders = read(tmp_path)
    assert orders.fault == FaultOrder()
    assert not orders.fault.is_for(Identity(rank=0, attempt=0, world_size=1, local_rank=0))


def test_the_whole_fault_is_read(tmp_path):
    fault = {"kind": "hold", "ranks": [0], "at": "before", "group": [3, 1], "op": "all_reduce", "nth": 4, "step": None}
    read_fault = read(tmp_path, fault={**fault, "delay_s": 1.5, "attempts": [0]}).fault
    assert read_fault == FaultOrder(
        kind="hold", ranks=(0,), at="before", group=(1, 3), op="all_reduce", nth=4, step=1, delay_s=1.5, attempts=(0,)
    )


@pytest.mark.parametrize(("rank", "attempt", "expected"), [(0, 0, True), (0, 1, False), (1, 0, False), (2, 0, True)])
def test_a_fault_is_for_its_ranks_and_attempts_only(rank, attempt, expected):
    fault = FaultOrder(kind="hold", ranks=(0, 2), attempts=(0,))
    assert fault.is_for(Identity(rank=rank, attempt=attempt, world_size=3, local_rank=rank)) is expected


def test_a_restarted_rank_has_files_of_its_own():
    first = Identity.from_environment({"RANK": "2", "WORLD_SIZE": "4"})
    second = Identity.from_environment({"RANK": "2", "WORLD_SIZE": "4", "TORCHELASTIC_RESTART_COUNT": "1"})
    assert (first.stem, second.stem) == ("rank_2.a0", "rank_2.a1")


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"schema": "hangdrill.agent/9"}, "hangdrill.agent/9"),
        ({"trigger": "telepathy"}, "trigger: expected one of"),
        ({"fault": {"kind": "hodl"}}, "fault.kind: expected one of"),
        ({"fault": {"kind": "hold", "at": "lunch"}}, "fault.at: expected one of"),
        ({"fault": {"kind": "skip", "at": "init"}}, "fault.at: skip changes an operation"),
        ({"fault": {"kind": "hold", "nth": 0}}, "count from 1"),
        ({"timeout_s": "soon"}, "soon"),
    ],
)
def test_a_mistake_in_the_orders_is_named(tmp_path, keys, named):
    with pytest.raises(OrdersError, match=named):
        read(tmp_path, **keys)


@pytest.mark.parametrize("content", [None, "", "[]", "{"])
def test_orders_that_cannot_be_read_are_an_error_of_their_own(tmp_path, content):
    path = tmp_path / "agent.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(OrdersError, match=r"agent\.json"):
        read_orders(path)


def test_a_missing_key_is_named(tmp_path):
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({key: value for key, value in MINIMUM.items() if key != "control"}))
    with pytest.raises(OrdersError, match="'control' is missing"):
        read_orders(path)
