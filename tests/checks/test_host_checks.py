"""What the checks say of faults of a host and of hosts that were lost; each with a record on which it must not pass."""

import pytest
from healthy_runs import CONFIRMED_NS, diagnosis, held_run, lose_rank, mutate, mutate_each, no_hang, scenario, undecided

from hangdrill.checks import run_check
from hangdrill.checks.arrival_known import CHECK as ARRIVAL
from hangdrill.checks.arrived_in_time import CHECK as IN_TIME
from hangdrill.checks.culprit import CHECK as CULPRIT
from hangdrill.checks.every_rank_dumped import CHECK as DUMPED
from hangdrill.checks.fault_confirmed import CHECK as CONFIRMED
from hangdrill.checks.nothing_left import CHECK as LEFT
from hangdrill.model.diagnosis import Basis, Culprit
from hangdrill.model.run import JournalEvent, NodeFault, NodeStatus
from hangdrill.model.scenario import FaultKind, Teardown
from hangdrill.model.verdict import Verdict

WHAT = {"link-down": "eth0 is down", "host-death": "every process is killed"}


def node(number, kind=None, **changes):
    fault = None if kind is None else NodeFault(kind=kind, what=WHAT[kind], time_ns=1)
    ranks = (2 * number, 2 * number + 1)
    status = NodeStatus(node=number, host=f"host-{number}", state="finished", ranks=ranks, fault=fault, leftovers=())
    return mutate(status, **changes)


def host_run(kind="link-down", *, nodes=None, expect=None, **changes):
    """Two hosts of two ranks; the fault is on the second, and its own clock is an hour off."""
    fault = {"kind": FaultKind(kind), "rank": None, "before": None, "at": "step:3", "node": 1, "interface": "eth0"}
    base = held_run(
        scenario=scenario(
            job={"nnodes": 2, "nproc_per_node": 2},
            fault=fault,
            expect={"culprit": None, "kind": None, **(expect or {})},
        ),
        faults=(),
        nodes=nodes or (node(0), node(1, kind)),
        diagnosis=undecided(),
    )
    journal = (JournalEvent(name="fault-confirmed", elapsed_s=1.0, time_ns=CONFIRMED_NS), *base.journal)
    return mutate(base, journal=journal, **changes)


def lost(number, kind=None):
    return node(number, kind, state="running", leftovers=None)


def answer(check, run):
    found = run_check(check, run)
    assert found is not None
    return found


def test_fault_of_a_host_is_confirmed_by_its_node_process():
    found = answer(CONFIRMED, host_run())
    assert (found.verdict, found.detail) == (Verdict.PASS, "link-down confirmed on host-1 (node 1): eth0 is down")


def test_fault_of_a_host_that_no_node_reported_is_unknown_with_the_nodes_problem():
    found = answer(CONFIRMED, host_run(nodes=(node(0), node(1, problem="tc: RTNETLINK answers: File exists"))))
    assert found.verdict is Verdict.UNKNOWN
    assert "node 1 never reported the fault link-down; host-1: tc: RTNETLINK" in found.detail


def test_another_fault_than_the_one_ordered_fails():
    found = answer(CONFIRMED, host_run(nodes=(node(0), node(1, "host-death"))))
    assert found.verdict is Verdict.FAIL


def test_report_of_another_host_is_no_proof():
    assert answer(CONFIRMED, host_run(nodes=(node(0, "link-down"), node(1)))).verdict is Verdict.UNKNOWN


def test_arrival_is_measured_from_the_journal_and_never_from_a_hosts_clock():
    assert answer(IN_TIME, host_run()).verdict is Verdict.PASS
    assert answer(IN_TIME, host_run(nodes=(node(0), node(1)))).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("said", [undecided(), no_hang()])
def test_naming_nobody_is_right_when_a_host_was_at_fault(said):
    assert answer(CULPRIT, host_run(diagnosis=said)).verdict is Verdict.PASS


def test_naming_a_rank_fails_when_the_link_was_at_fault():
    found = answer(CULPRIT, host_run(diagnosis=diagnosis()))
    assert (found.verdict, found.ranks) == (Verdict.FAIL, {"1": Verdict.FAIL})
    assert "rank 1 named, though the fault was one of a host" in found.detail


@pytest.mark.parametrize(
    ("rank", "verdict"), [(0, Verdict.FAIL), (1, Verdict.FAIL), (2, Verdict.PASS), (3, Verdict.PASS)]
)
def test_ranks_that_died_with_their_host_may_be_missed_and_no_others(rank, verdict):
    named = mutate(diagnosis(), culprits=(Culprit(rank=rank, basis=Basis.INFERRED, why="no dump"),))
    nodes = (node(0), lost(1, "host-death"))
    assert answer(CULPRIT, host_run("host-death", nodes=nodes, diagnosis=named)).verdict is verdict


def test_unconfirmed_fault_of_a_host_says_nothing_of_culprits():
    assert answer(CULPRIT, host_run(nodes=(node(0), node(1)))).verdict is Verdict.UNKNOWN


def test_dump_that_went_with_its_host_is_missing_and_says_so():
    note = "their host host-1 has not been heard of for 15 s"
    run = lose_rank(host_run("host-death", nodes=(node(0), lost(1, "host-death"))), 3)
    reports = mutate_each(run.manifest.ranks, lambda pull: mutate(pull, notes=(note,)), rank=3)
    found = answer(DUMPED, mutate(run, manifest=mutate(run.manifest, ranks=reports)))
    assert (found.verdict, found.ranks["3"]) == (Verdict.FAIL, Verdict.FAIL)
    assert note in found.detail
    assert "expect.dumps" in found.mend


def test_dump_that_is_missing_of_a_living_host_is_explained_otherwise():
    found = answer(DUMPED, lose_rank(host_run(), 3))
    assert found.verdict is Verdict.FAIL
    assert "host itself is gone" not in found.mend


def test_lost_host_owes_the_arrival_table_nothing():
    run = lose_rank(host_run(nodes=(node(0), lost(1, "link-down"))), 3)
    assert answer(ARRIVAL, run).verdict is Verdict.PASS
    assert answer(ARRIVAL, lose_rank(host_run(), 3)).verdict is Verdict.FAIL


def test_host_that_was_lost_unasked_was_not_looked_at():
    found = answer(LEFT, host_run(nodes=(node(0), lost(1, "link-down"))))
    assert found.verdict is Verdict.UNKNOWN
    assert "host-1 was not heard of at the end" in found.detail
    assert "on that host" in found.mend


@pytest.mark.parametrize(("kind", "expect"), [("host-death", {}), ("link-down", {"survives": (Teardown.HOST_LOSS,)})])
def test_host_that_the_drill_took_away_needs_no_look(kind, expect):
    found = answer(LEFT, host_run(kind, nodes=(node(0), lost(1, kind)), expect=expect))
    assert found.verdict is Verdict.PASS
    assert "host-1 was taken away" in found.detail


def test_host_that_the_drill_did_not_take_away_is_missed_all_the_same():
    run = host_run("host-death", nodes=(lost(0), lost(1, "host-death")))
    found = answer(LEFT, run)
    assert found.verdict is Verdict.UNKNOWN
    assert "host-0" in found.detail


@pytest.mark.parametrize("nodes", [(node(0),), (node(0), node(1, leftovers=None))])
def test_a_host_that_came_and_whose_last_word_is_not_there_was_not_looked_at(nodes):
    ready = JournalEvent(name="nodes-ready", elapsed_s=0.5, time_ns=1, detail={"hosts": {"0": "host-0", "1": "host-1"}})
    run = host_run(nodes=nodes)
    found = answer(LEFT, mutate(run, journal=(ready, *run.journal)))
    assert (found.verdict, found.detail) == (
        Verdict.UNKNOWN,
        "host-1 was not heard of at the end, so nobody looked there",
    )


def test_every_host_that_came_said_that_nothing_is_left():
    ready = JournalEvent(name="nodes-ready", elapsed_s=0.5, time_ns=1, detail={"hosts": {"0": "host-0", "1": "host-1"}})
    run = host_run()
    assert answer(LEFT, mutate(run, journal=(ready, *run.journal))).verdict is Verdict.PASS
