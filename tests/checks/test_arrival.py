"""The arrival table says who dumps under which torch, backend, road and fault, and every-rank-dumped quotes it."""

import pytest
from healthy_runs import WORLD, held_run, lose_rank, mutate, none_run, scenario

from hangdrill.checks.arrival import ARRIVALS, Arrival, Role, expected_arrival, version_of
from hangdrill.checks.every_rank_dumped import CHECK
from hangdrill.model.run import Manifest, RankPull, RankState
from hangdrill.model.scenario import FaultKind, Trigger
from hangdrill.model.verdict import Verdict

NATIVE = Trigger.NATIVE


def lookup(backend_class, trigger, fault=FaultKind.HOLD, torch="2.15.0", **other):
    return expected_arrival(
        torch=torch, backend_class=backend_class, backend_requested="", trigger=trigger, fault=fault, **other
    )


@pytest.mark.parametrize(
    ("backend_class", "trigger", "fault", "dumping"),
    [
        ("ProcessGroupGloo", NATIVE, FaultKind.HOLD, ()),
        ("ProcessGroupGloo", Trigger.DEBUG_SERVER, FaultKind.HOLD, ()),
        ("ProcessGroupGloo", Trigger.COLLECTOR, FaultKind.HOLD_GIL, (Role.STALLED, Role.WAITING)),
        ("ProcessGroupGloo", Trigger.COLLECTOR, FaultKind.STOP, (Role.WAITING,)),
        ("ProcessGroupGloo", Trigger.COLLECTOR, FaultKind.KILL, (Role.WAITING,)),
        ("ProcessGroupNCCL2", NATIVE, FaultKind.HOLD, (Role.WAITING,)),
        ("ProcessGroupNCCL2", NATIVE, FaultKind.WRONG_OP, (Role.STALLED, Role.WAITING)),
        ("ProcessGroupNCCL2", NATIVE, FaultKind.KILL, ()),
        ("ProcessGroupNCCL2", Trigger.DEBUG_SERVER, FaultKind.HOLD, (Role.STALLED, Role.WAITING)),
        ("ProcessGroupNCCL2", Trigger.DEBUG_SERVER, FaultKind.STOP, (Role.WAITING,)),
        ("ProcessGroupNCCLLazy", NATIVE, FaultKind.HOLD, ()),
        ("ProcessGroupNCCL", NATIVE, FaultKind.HOLD, (Role.STALLED, Role.WAITING)),
    ],
)
def test_table_says_what_was_measured(backend_class, trigger, fault, dumping):
    row = lookup(backend_class, trigger, fault)
    assert row is not None
    assert row.dumping == dumping


def test_nothing_is_said_of_what_was_not_measured():
    assert lookup("FancyBackend", NATIVE) is None
    assert lookup("", NATIVE) is None


def test_requested_name_decides_only_when_no_class_is_known():
    known = {"torch": "", "trigger": NATIVE, "fault": FaultKind.HOLD}
    assert expected_arrival(backend_class="", backend_requested="gloo", **known).dumping == ()
    assert expected_arrival(backend_class="ProcessGroupNCCL", backend_requested="gloo", **known).dumping != ()


def test_version_range_is_compared_as_numbers():
    row = Arrival(backend_class="", triggers=(NATIVE,), dumping=(), why="", since=(2, 9), until=(2, 15))
    found = {torch: lookup("", NATIVE, torch=torch, rows=(row,)) is row for torch in ("2.8", "2.10.1", "2.15.0", "")}
    assert found == {"2.8": False, "2.10.1": True, "2.15.0": False, "": False}


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.15.0+cu132", (2, 15, 0)), ("2.16.0a0+git1234", (2, 16)), ("", ()), ("nightly", ())],
)
def test_version_of_takes_the_leading_numbers(text, version):
    assert version_of(text) == version


def test_every_row_that_loses_a_dump_says_why():
    assert [row for row in ARRIVALS if not row.why] == []


def test_native_gloo_fails_with_the_reason_and_the_mend():
    run = held_run(scenario=scenario(recorder={"trigger": NATIVE}), manifest=Manifest(complete=True))
    for rank in WORLD:
        run = lose_rank(run, rank)
    answer = CHECK.judge(run)
    assert answer.verdict is Verdict.FAIL
    assert answer.detail == (
        "0 of 4 dumps arrived; ranks 0, 1, 2, 3: missing: gloo has no abort hook, so torch never dumps by itself"
    )
    assert answer.mend == 'use trigger = "collector"'


def test_missing_dump_quotes_what_the_collector_saw():
    run = lose_rank(held_run(), 2)
    pull = RankPull(rank=2, state=RankState.GONE, notes=("the socket refused",))
    answer = CHECK.judge(mutate(run, manifest=mutate(run.manifest, ranks=(pull,))))
    assert answer.detail == "3 of 4 dumps arrived; rank 2: missing: the process was last seen gone, the socket refused"


def test_dump_that_was_not_expected_is_a_remark():
    answer = CHECK.judge(held_run(scenario=scenario(expect={"dumps": (0, 2, 3)})))
    assert (answer.verdict, answer.detail) == (
        Verdict.PASS,
        "3 of 3 dumps arrived; rank 1 left one too, which was not expected",
    )


def test_notice_is_quoted_where_no_hang_was_expected():
    manifest = mutate(none_run().manifest, noticed_ns=1, notice="all_reduce #4 pending for 4.0 s")
    answer = CHECK.judge(none_run(manifest=manifest))
    assert answer.detail == "the collector noticed all_reduce #4 pending for 4.0 s, but no hang was expected"
