"""The diagnosis of random programs equals what the simulator knows. HANGDRILL_EXAMPLES=10000 makes it the long run."""

import dataclasses
import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_strategies import Case, cases
from simulated_dumps import groups_of, record
from simulated_judge import complaint, evidence_is_complete
from simulated_reports import after_the_timeout, reports_of
from simulated_truth import truth_of
from simulator import Fault, execute

from hangdrill.diagnosis import diagnose, history
from hangdrill.model.diagnosis import Diagnosis, HangVerdict
from hangdrill.model.dump import Operation

EXAMPLES = int(os.environ.get("HANGDRILL_EXAMPLES", "120"))
SHORT = "HANGDRILL_EXAMPLES" not in os.environ
PROFILE = settings(
    max_examples=EXAMPLES, derandomize=SHORT, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


def ask(case: Case, seed: int | None = None) -> Diagnosis:
    dumps = record(case.outcome, case.how)
    if seed is not None:
        random.Random(seed).shuffle(dumps)
    return diagnose(
        dumps,
        world_size=case.outcome.program.world if case.world_known else None,
        launch_groups=groups_of(case.outcome) if case.launch_groups else (),
    )


def hold_to(problem: str, diagnosis: Diagnosis) -> None:
    assert not problem, f"{problem}\n{diagnosis}"


@PROFILE
@given(cases(plain=True))
def test_with_all_the_evidence_the_answer_is_the_truth(case: Case) -> None:
    diagnosis = ask(case)
    hold_to(complaint(case, diagnosis), diagnosis)


@PROFILE
@given(cases())
def test_with_evidence_missing_the_answer_is_right_or_undecided(case: Case) -> None:
    if len(case.how.lost | case.outcome.killed) < case.outcome.program.world:
        diagnosis = ask(case)
        hold_to(complaint(case, diagnosis), diagnosis)


@PROFILE
@given(cases(), st.integers(0, 99))
def test_the_order_of_the_dumps_never_matters(case: Case, seed: int) -> None:
    if len(case.how.lost | case.outcome.killed) < case.outcome.program.world:
        assert ask(case, seed) == ask(case)


@PROFILE
@given(cases(plain=True), st.data())
def test_a_dump_taken_too_early_makes_no_innocent_a_culprit(case: Case, data: st.DataObject) -> None:
    """When it shows that it is old: a peer finished what this rank, by its dump, never entered."""
    rank = data.draw(st.integers(0, case.outcome.program.world - 1))
    mine = case.outcome.entries[rank]
    done = [e for e in mine if not e.pending and e.step.op in {"all_reduce", "all_gather", "all_to_all", "barrier"}]
    if not done or len(done[0].step.team.ranks) == 1 or case.how.dialect == "gloo":
        return
    early = dataclasses.replace(case, how=dataclasses.replace(case.how, early={rank: done[0].created - 1}))
    diagnosis = ask(early)
    hold_to(complaint(early, diagnosis), diagnosis)


@PROFILE
@given(cases(plain=True), st.integers(0, 60), st.booleans())
def test_a_second_dump_of_the_same_rank_changes_nothing(case: Case, tick: int, only_active: bool) -> None:
    """The native file and the pulled one, taken at other moments or of active operations only, stand side by side."""
    world = case.outcome.program.world
    how = dataclasses.replace(case.how, early=dict.fromkeys(range(world), tick), only_active=only_active)
    dumps = record(case.outcome, case.how)
    told = {"world_size": world, "launch_groups": groups_of(case.outcome)}
    first = diagnose(dumps, **told)
    both = diagnose([*record(case.outcome, how), *dumps], **told)
    assert (both.verdict, both.kind, both.stuck) == (first.verdict, first.kind, first.stuck)
    assert [culprit.rank for culprit in both.culprits] == [culprit.rank for culprit in first.culprits]


@PROFILE
@given(cases(), st.integers(0, 3))
def test_what_is_not_notable_is_found_where_it_matters(case: Case, last: int) -> None:
    """With the whole history looked at, and with next to nothing of it, the answer is the same."""
    if len(case.how.lost | case.outcome.killed) >= case.outcome.program.world:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "LAST", 10**6)
        whole = ask(case)
        patch.setattr(history, "LAST", last)
        patch.setattr(history, "LAST_OF_SORT", 1)
        assert ask(case) == whole


SYNCHRONISING = {"all_reduce", "all_gather", "_all_gather_base", "_reduce_scatter_base", "all_to_all", "barrier"}


def _key(operation: Operation) -> tuple[str, str, int]:
    return operation.group_name, operation.group_desc, operation.sequence


@PROFILE
@given(cases(plain=True), st.integers(0, 15), st.sampled_from([60, 3600]), st.integers(2, 14))
def test_a_file_of_an_earlier_attempt_names_no_innocent(case: Case, number: int, age_s: int, steps: int) -> None:
    """A restart ran the same program again; one rank's file is still that of the attempt before, which was killed."""
    outcome = case.outcome
    rank = number % outcome.program.world
    lost = dataclasses.replace(case, how=dataclasses.replace(case.how, lost=frozenset({rank})))
    before = execute(outcome.program, [Fault("exit", r, steps) for r in range(outcome.program.world)])
    past = record(before, dataclasses.replace(case.how, skew_s={rank: -age_s}))
    dumps = [*record(outcome, lost.how), *(dump for dump in past if dump.rank == rank)]
    seen = [{_key(o) for o in dump.operations if o.name in SYNCHRONISING} for dump in dumps]
    if len(dumps) < 2 or not outcome.hung or not seen[-1] & set().union(*seen[:-1]):
        return  # without a common operation that nobody finishes alone, no time in the file gives it away
    diagnosis = diagnose(dumps, world_size=outcome.program.world, launch_groups=groups_of(outcome))
    hold_to(complaint(lost, diagnosis, blurred=True), diagnosis)


@PROFILE
@given(cases(plain=True), st.booleans())
def test_reports_after_the_timeout_name_no_innocent(case: Case, over: bool) -> None:
    """Without sends and receives the answer is exact, whether the dumps were pulled before gloo raised or after.

    After, all that was unfinished reads retired, so of ranks that had enqueued ahead nobody knows which was the first.
    """
    case = dataclasses.replace(case, how=dataclasses.replace(case.how, dialect="gloo"))
    outcome = after_the_timeout(case.outcome) if over else case.outcome
    diagnosis = diagnose(
        record(outcome, case.how),
        world_size=outcome.program.world,
        launch_groups=groups_of(outcome),
        reports=reports_of(case.outcome),
    )
    ahead = over and outcome.lookahead > 1
    hold_to(complaint(case, diagnosis, reported=True, blurred=ahead), diagnosis)


@PROFILE
@given(cases(plain=True))
def test_the_stuck_operation_is_one_that_the_culprit_is_awaited_in(case: Case) -> None:
    truth, diagnosis = truth_of(case.outcome), ask(case)
    if not (evidence_is_complete(case) and truth.kinds == {"rank-absent"} and not truth.untellable):
        return
    assert diagnosis.verdict is HangVerdict.HANG
    stuck = diagnosis.stuck
    assert stuck is not None
    assert set(stuck.absent) & truth.culprits
    waiting = {
        rank
        for rank, entries in enumerate(case.outcome.entries)
        for entry in entries
        if entry.pending and not entry.step.p2p and entry.sequence == stuck.sequence
        and (entry.step.team.name, entry.step.team.ranks) == (stuck.group.name, stuck.group.ranks)
    }  # fmt: skip
    assert set(stuck.waiting) == waiting
    assert set(stuck.absent) | waiting <= set(stuck.group.ranks)
