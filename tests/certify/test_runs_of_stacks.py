"""Whether a run shows what its lines claim: every rank seen, and each with the torch of the stack it stands for."""

import msgspec
import pytest
from canary_cases import canary_run, rank_record

from hangdrill.certify.canary_backend import backend_line
from hangdrill.certify.canary_runs import PairRuns, run_of_stack
from hangdrill.certify.stacks import Stack
from hangdrill.model.errors import MachineError
from hangdrill.model.fingerprint import Fingerprint
from hangdrill.model.verdict import Verdict

WHOLE = canary_run(*(rank_record(rank, ranks=3) for rank in range(3)), ranks=3)
CANDIDATE = Stack(
    name="candidate", python="/b/bin/python", fingerprint=Fingerprint(python="3.12.0", torch="2.15.0+cu132")
)


def with_rank(rank: int, **facts):
    """The whole run, but for what one rank says of itself."""
    ranks = list(WHOLE.ranks)
    ranks[rank] = msgspec.structs.replace(ranks[rank], facts=msgspec.structs.replace(ranks[rank].facts, **facts))
    return msgspec.structs.replace(WHOLE, ranks=tuple(ranks))


def without_rank(rank: int):
    return msgspec.structs.replace(WHOLE, ranks=tuple(one for one in WHOLE.ranks if one.rank != rank))


def test_the_backend_passes_when_every_rank_of_every_run_said_its_class():
    line, difference = backend_line("b", PairRuns(baseline=(WHOLE, WHOLE), candidate=(WHOLE, WHOLE)), ())
    assert (line.verdict, difference) == (Verdict.PASS, None)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("side", ["baseline", "candidate"])
@pytest.mark.parametrize("silent", [without_rank, lambda rank: with_rank(rank, backend_class="")], ids=["gone", "none"])
def test_the_backend_is_unknown_when_one_rank_of_one_run_said_none(side, rank, silent):
    given = {"baseline": (WHOLE, WHOLE), "candidate": (WHOLE, WHOLE), side: (WHOLE, silent(rank))}
    line, difference = backend_line("b", PairRuns(**given), ())
    assert (line.verdict, difference) == (Verdict.UNKNOWN, None)
    assert f"{side}, in one run not of rank {rank}" in line.detail


def test_a_second_class_fails_also_when_another_rank_said_none():
    mixed = with_rank(1, backend_class="ProcessGroupGloo")
    line, _ = backend_line("b", PairRuns(baseline=(WHOLE,), candidate=(mixed, without_rank(2))), ())
    assert line.verdict is Verdict.FAIL


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_with_another_torch_is_not_of_the_stack(rank):
    run = with_rank(rank, torch="2.14.1+cu130", host="node-b")
    with pytest.raises(
        MachineError, match=rf"rank {rank} on node-b had torch 2.14.1\+cu130, and the candidate is 2.15"
    ):
        run_of_stack(run, CANDIDATE)


@pytest.mark.parametrize("torch", ["", "2.15.0+cu132"])
def test_a_rank_with_the_stacks_torch_or_that_never_said_is_left_to_the_lines(torch):
    assert run_of_stack(with_rank(0, torch=torch), CANDIDATE).ranks[0].facts.torch == torch
