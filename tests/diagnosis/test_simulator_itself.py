"""The simulator tells the truth: checked against what is plain from the way its programs are written."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_strategies import Case, cases, program_of, ring, transfer
from simulated_dumps import Recording, record
from simulated_truth import truth_of
from simulator import Fault, Outcome, Program, Step, Team, execute

SETTINGS = settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
WORLD = Team("0", "default_pg", (0, 1, 2))


def everybody(op: str = "all_reduce", team: Team = WORLD) -> dict[int, Step]:
    return dict.fromkeys(team.ranks, Step(team, op))


@SETTINGS
@given(cases(), st.booleans())
def test_a_program_without_fault_always_ends(case: Case, serial: bool) -> None:
    for lookahead in (1, 3):
        assert not execute(case.outcome.program, lookahead=lookahead, serial=serial).hung


@SETTINGS
@given(cases())
def test_the_culprit_is_where_the_fault_was_placed(case: Case) -> None:
    truth, faults = truth_of(case.outcome), case.outcome.faults
    placed = frozenset(fault.rank for fault in faults)
    kinds = {fault.kind for fault in faults}
    if not faults:
        assert not truth.hung
    elif truth.hung and kinds != {"stall"} and not truth.untellable:
        assert truth.culprits
        assert truth.culprits <= placed
        assert truth.culprits <= truth.may
        assert truth.kinds


@SETTINGS
@given(cases())
def test_a_hang_has_a_reason(case: Case) -> None:
    truth = truth_of(case.outcome)
    assert not truth.hung or truth.culprits or truth.untellable


def naive(program: Program, seed: int) -> list[list[bool]]:
    """An independent, slower run of a blocking program: ranks move in a random order, one at a time."""
    dice = random.Random(seed)
    at = [0] * program.world
    inside: dict[int, Step] = {}
    while True:
        moves = [r for r in range(program.world) if r not in inside and at[r] < len(program.steps[r])]
        if moves:
            rank = dice.choice(moves)
            inside[rank] = program.steps[rank][at[rank]]
            continue
        done = [rank for rank in inside if _meets(inside, rank)]
        if not done:
            return [[True] * at[r] + [False] * (r in inside) for r in range(program.world)]
        step = inside[dice.choice(done)]
        members = [rank for rank in inside if inside[rank].label == step.label and step.team == inside[rank].team]
        for rank in members:
            at[rank] += 1
            del inside[rank]


def _meets(inside: dict[int, Step], rank: int) -> bool:
    """All partners of this rank's step are inside the very same written operation."""
    step = inside[rank]
    partners = {part.peer for part in step.parts} or set(step.team.ranks)
    if step.batched:
        partners = set(step.team.ranks)
    return all(peer in inside and inside[peer].label == step.label for peer in partners)


@SETTINGS
@given(cases(), st.integers(0, 9))
def test_a_naive_machine_comes_to_the_same_end_in_any_order(case: Case, seed: int) -> None:
    """For absences: the other faults make operations meet that were not written as one."""
    faults = tuple(fault for fault in case.outcome.faults if fault.kind in {"hold", "exit", "kill"})
    program = case.outcome.program
    plain = all(not step.batched for steps in program.steps for step in steps)
    if not plain:
        return
    outcome = execute(program, faults)
    cut = [list(steps) for steps in program.steps]
    for fault in faults:
        del cut[fault.rank][fault.index :]
    same = naive(Program(program.teams, tuple(map(tuple, cut))), seed)
    assert [[not entry.pending for entry in entries] for entries in outcome.entries] == same


def test_a_rank_held_before_a_collective_is_awaited_by_all_others() -> None:
    program = program_of([WORLD], (everybody(), everybody()), 3)
    truth = truth_of(execute(program, [Fault("hold", 1, 1)]))
    assert (truth.hung, truth.culprits, truth.kinds) == (True, {1}, {"rank-absent"})


def test_a_rank_held_after_the_last_operation_hangs_nobody() -> None:
    program = program_of([WORLD], (everybody(),), 3)
    assert not truth_of(execute(program, [Fault("hold", 1, 1)])).hung


def test_two_members_that_do_different_things_cannot_be_told_apart() -> None:
    pair = Team("1", "undefined", (0, 1))
    program = program_of([WORLD, pair], (everybody(team=pair), everybody()), 3)
    truth = truth_of(execute(program, [Fault("wrong-op", 1, 0)]))
    assert (truth.hung, truth.culprits, truth.kinds) == (True, frozenset(), {"op-mismatch"})
    assert truth.untellable


def test_swapped_groups_of_two_ranks_are_a_cycle() -> None:
    first, second = Team("1", "undefined", (0, 1)), Team("2", "undefined", (0, 1, 2))
    program = program_of([WORLD, first, second], (everybody(team=first), everybody(team=second)), 3)
    truth = truth_of(execute(program, [Fault("invert", 0, 0)]))
    assert "order-inversion" in truth.kinds
    assert truth.may == {0, 1}


def test_a_ring_whose_member_is_held_is_unmatched() -> None:
    program = program_of([WORLD], (ring(WORLD), ring(WORLD)), 3)
    truth = truth_of(execute(program, [Fault("hold", 2, 1)]))
    assert (truth.culprits, truth.kinds) == ({2}, {"p2p-unmatched"})


def _pipeline(dialect: str, fault: Fault) -> tuple[Outcome, list[object]]:
    program = program_of([WORLD], (transfer(WORLD, 0, 1), transfer(WORLD, 1, 2), everybody()), 3)
    outcome = execute(program, [fault])
    dumps = record(outcome, Recording(dialect=dialect))
    return outcome, [(d.rank, o.name, o.sequence, o.op_id, o.peer, o.retired) for d in dumps for o in d.operations]


@pytest.mark.parametrize(
    ("dialect", "rows"),
    [
        ("nccl2", [(0, "send", 1, 0, 1, True), (0, "all_reduce", 1, 1, None, False), (1, "recv", 1, 0, 0, True),
                   (1, "send", 2, 1, 2, False)]),
        ("nccl-legacy", [(0, "send", 1, 1, 1, True), (0, "all_reduce", 1, 2, None, False), (1, "recv", 1, 1, 0, True),
                         (1, "send", 2, 2, 2, False)]),
        ("gloo", [(0, "all_reduce", 1, 2, None, False)]),
    ],
)  # fmt: skip
def test_each_dialect_counts_and_leaves_out_as_the_evidence_says(dialect: str, rows: list[object]) -> None:
    assert _pipeline(dialect, Fault("hold", 2, 0))[1] == rows


def test_a_killed_rank_leaves_no_dump() -> None:
    outcome, _ = _pipeline("nccl2", Fault("kill", 2, 0))
    assert [dump.rank for dump in record(outcome, Recording())] == [0, 1]


def test_the_ring_buffer_keeps_the_newest_and_their_numbers() -> None:
    program = program_of([WORLD], (everybody(),) * 5, 3)
    (dump, *_) = record(execute(program), Recording(window=2))
    assert [operation.record_id for operation in dump.operations] == [3, 4]
