"""The table against what two GPUs really left: every run of tests/data/gpu_runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from hangdrill.arrival import Arrival, Role, expected_arrival
from hangdrill.model.scenario import FaultKind, Trigger

RUNS = Path(__file__).parents[1] / "data" / "gpu_runs"
TRUTHS = {path.parent.name: json.loads(path.read_text()) for path in sorted(RUNS.glob("*/truth.json"))}
INTERVALS_S = {"debug-server": 2.0, "debug-server-60s": 60.0}
HUNG = [name for name, truth in TRUTHS.items() if truth["hang"]]


def row_of(truth: dict[str, Any]) -> Arrival:
    row = expected_arrival(
        torch=truth["torch"],
        backend_class=truth["backend_class"],
        backend_requested=truth["backend"],
        trigger=Trigger(truth["road"].removesuffix("-60s")),
        fault=FaultKind(truth["fault"]),
        interval_s=INTERVALS_S.get(truth["road"], 60.0),
    )
    assert row is not None, "nothing was measured of this"
    return row


def surprises(truth: dict[str, Any], row: Arrival) -> list[int]:
    """Ranks that left a dump or did not, though the row says otherwise."""
    arrived = {*truth["dumps_that_arrived"]}
    roles = {rank: Role.STALLED if rank in truth["culprits"] else Role.WAITING for rank in range(truth["world_size"])}
    return [
        rank
        for rank, role in roles.items()
        if (rank in arrived) is not (role in row.dumping) and not (rank in arrived and role in row.perhaps)
    ]


@pytest.mark.parametrize("name", HUNG)
def test_the_ranks_that_left_a_dump_are_those_of_the_table(name: str) -> None:
    assert surprises(TRUTHS[name], row_of(TRUTHS[name])) == []


def test_every_class_and_road_of_the_runs_is_in_the_table() -> None:
    assert {(truth["backend_class"], truth["road"]) for truth in map(TRUTHS.__getitem__, HUNG)} >= {
        ("ProcessGroupNCCL2", "native"),
        ("ProcessGroupNCCL2", "debug-server"),
        ("ProcessGroupNCCL2", "debug-server-60s"),
        ("ProcessGroupNCCLLazy", "native"),
        ("ProcessGroupNCCLLazy", "debug-server"),
        ("ProcessGroupNCCL", "native"),
        ("ProcessGroupNCCL", "debug-server"),
    }


def test_a_torch_that_changed_would_be_noticed() -> None:
    """The negative control: another backend's row does not fit."""
    truth = TRUTHS["nccl.native.all-reduce-hold-r1"]
    legacy = row_of({**truth, "backend_class": "ProcessGroupNCCL"})
    lazy = row_of({**truth, "backend_class": "ProcessGroupNCCLLazy"})
    assert surprises(truth, legacy) == [1]
    assert surprises(truth, lazy) == [0]
