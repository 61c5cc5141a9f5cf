"""The arrival table says who dumps under which torch, backend, road and fault."""

import pytest

from hangdrill.arrival import ARRIVALS, Arrival, Role, expected_arrival, version_of
from hangdrill.model.scenario import FaultKind, Trigger

NATIVE = Trigger.NATIVE


def lookup(backend_class, trigger, fault=FaultKind.HOLD, torch="2.15.0", **other):
    given = {"torch": torch, "interval_s": 2.0, **other}
    return expected_arrival(backend_class=backend_class, backend_requested="", trigger=trigger, fault=fault, **given)


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
        ("ProcessGroupNCCL2", NATIVE, FaultKind.GPU_KERNEL, (Role.STALLED, Role.WAITING)),
        ("ProcessGroupNCCL2", NATIVE, FaultKind.OOM, ()),
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
    row = Arrival(triggers=(NATIVE,), dumping=(), why="", since=(2, 9), until=(2, 15))
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


def test_the_debug_server_brings_the_stalled_rank_only_if_it_polls_before_the_abort():
    polling = {"backend_class": "ProcessGroupNCCL2", "trigger": Trigger.DEBUG_SERVER}
    assert lookup(**polling, interval_s=2).dumping == (Role.STALLED, Role.WAITING)
    assert lookup(**polling, interval_s=60).dumping == (Role.WAITING,)
    assert "below 15" in lookup(**polling, interval_s=60).mend
    assert lookup(**polling, interval_s=60) == expected_arrival(
        torch="2.15.0", backend_requested="", fault=FaultKind.HOLD, **polling
    )


def test_no_role_is_both_certain_and_uncertain():
    assert [row for row in ARRIVALS if set(row.dumping) & set(row.perhaps)] == []
