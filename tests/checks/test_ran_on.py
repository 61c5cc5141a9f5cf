"""Dumps of a job that merely ran on name nobody; a rank that really stayed away is named all the same."""

import pytest
from healthy_runs import PULLED_NS, diagnosis, held_run, mutate, scenario, with_agent

from hangdrill.checks.window import CHECK as WINDOW
from hangdrill.drill.judge import _unless_it_ran_on
from hangdrill.model.diagnosis import Basis, Culprit, HangKind, HangVerdict
from hangdrill.model.run import JournalEvent
from hangdrill.model.scenario import FaultKind


def counted(rank, collectives, **changes):
    """The record in which a rank's agent has counted so many, when everything was in."""
    run = held_run()
    return with_agent(run, rank, groups=(mutate(run.agents[rank].groups[0], collectives=collectives, **changes),))


def test_rank_that_entered_the_operation_after_its_dump_is_not_named():
    found = _unless_it_ran_on(diagnosis(), counted(1, 4), 0)
    assert (found.verdict, found.kind, found.culprits) == (HangVerdict.UNDECIDED, None, ())
    assert "rank 1 entered all_reduce #4 of default_pg once their dumps were taken" in found.notes[0]


def test_rank_that_stayed_away_is_named():
    assert _unless_it_ran_on(diagnosis(), held_run(), 0) == diagnosis()


def test_two_that_stayed_away_are_named():
    both = mutate(diagnosis(), culprits=tuple(Culprit(rank=rank, basis=Basis.OBSERVED, why="x") for rank in (1, 2)))
    run = counted(2, 3)
    assert _unless_it_ran_on(both, run, 0) == both


def test_of_two_the_one_that_went_on_is_not_named_and_the_other_is():
    both = mutate(
        diagnosis(),
        culprits=tuple(Culprit(rank=rank, basis=Basis.OBSERVED, why="x") for rank in (1, 2)),
        stuck=mutate(diagnosis().stuck, waiting=(0, 3), absent=(1, 2)),
    )
    run = counted(1, 4)
    run = with_agent(run, 2, groups=(mutate(run.agents[2].groups[0], collectives=3),))
    found = _unless_it_ran_on(both, run, 0)
    assert (found.verdict, [culprit.rank for culprit in found.culprits]) == (HangVerdict.HANG, [2])
    assert (found.stuck.waiting, found.stuck.absent) == ((0, 1, 3), (2,))
    assert "rank 1 entered all_reduce #4" in found.notes[0]


def test_rank_that_entered_it_only_once_it_was_released_is_named():
    run = counted(1, 4, last_operation_ns=PULLED_NS)
    released = JournalEvent(name="released", elapsed_s=8.0, time_ns=PULLED_NS, detail={"from_ns": PULLED_NS})
    assert _unless_it_ran_on(diagnosis(), mutate(run, journal=(released, *run.journal)), 0) == diagnosis()


@pytest.mark.parametrize("changes", [{"name": "7"}, {"desc": "mesh_tp"}])
def test_count_of_another_group_proves_nothing(changes):
    assert _unless_it_ran_on(diagnosis(), counted(1, 99, **changes), 0) == diagnosis()


def test_count_of_another_attempt_proves_nothing():
    assert _unless_it_ran_on(diagnosis(), counted(1, 99), 1) == diagnosis()


def test_other_kinds_of_hang_are_left_alone():
    mismatch = mutate(diagnosis(), kind=HangKind.OP_MISMATCH)
    assert _unless_it_ran_on(mismatch, counted(1, 99), 0) == mismatch


@pytest.mark.parametrize(
    ("kind", "verdict", "judged"),
    [
        (FaultKind.AGENT_KILL, HangVerdict.UNDECIDED, False),
        (FaultKind.AGENT_KILL, HangVerdict.HANG, True),
        (FaultKind.HOLD, HangVerdict.UNDECIDED, True),
    ],
)
def test_around_what_orphans_are_in_while_they_train_on_no_window_is_asked_for(kind, verdict, judged):
    run = held_run(scenario=scenario(fault={"kind": kind}), diagnosis=mutate(diagnosis(), verdict=verdict))
    assert (WINDOW.judge(run) is not None) is judged
