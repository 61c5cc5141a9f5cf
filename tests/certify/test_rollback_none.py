"""A backend that was not replaced has nothing to roll back to; that is seen on every rank, and never assumed."""

import msgspec
import pytest
from canary_cases import canary_run, rank_record
from certify_contexts import context_of

from hangdrill.certify.rollback import RollbackCell, rollback_cells
from hangdrill.certify.rollback_none import NothingReplacedCell, judge_classes
from hangdrill.model.verdict import Verdict


def run_of(*classes, ranks=2):
    return canary_run(*(rank_record(rank, backend_class=one) for rank, one in enumerate(classes)), ranks=ranks)


GLOO = run_of("ProcessGroupGloo", "ProcessGroupGloo")


@pytest.mark.parametrize(
    ("candidate", "verdict", "said"),
    [
        (GLOO, Verdict.PASS, "all 4 ranks"),
        (run_of("ProcessGroupGloo", "ProcessGroupGloo2"), Verdict.FAIL, "ProcessGroupGloo2"),
        (run_of("ProcessGroupGloo", ""), Verdict.UNKNOWN, "no process group"),
        (run_of("ProcessGroupGloo"), Verdict.UNKNOWN, "left no record"),
    ],
)
def test_every_rank_of_both_stacks_must_show_the_same_class(candidate, verdict, said):
    found, detail = judge_classes({"baseline": GLOO, "candidate": candidate})
    assert found is verdict
    assert said in detail


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        ("gloo", NothingReplacedCell),
        ("nccl", RollbackCell),
        ("nccl-lazy", RollbackCell),
        ("cpu:gloo,cuda:nccl", RollbackCell),
    ],
)
def test_a_plan_that_names_nccl_keeps_every_line_of_the_fallback(tmp_path, backend, kind):
    (cell,) = rollback_cells(context_of(tmp_path, backend=backend).plan)
    assert type(cell) is kind
    named = {claim.id for claim in cell.claims}
    assert ("rollback/variable/proof" in named) == (kind is RollbackCell)
    assert ("rollback/record" in named) == (kind is RollbackCell)


@pytest.mark.torchrun
def test_on_gloo_the_receipt_says_why_there_is_no_fallback(tmp_path):
    context = context_of(tmp_path)
    result = NothingReplacedCell(context.plan).run(context)
    (line,) = result.lines
    assert line.verdict is Verdict.PASS, line.detail
    assert "does not apply to gloo" in result.rollback.detail
    assert "ProcessGroupGloo on all 4 ranks" in result.rollback.detail
    assert line.evidence == ("work/runs.json",)


@pytest.mark.torchrun
def test_a_stack_that_makes_no_group_is_unknown_and_never_a_pass(tmp_path):
    context = context_of(tmp_path)
    broken = msgspec.structs.replace(context.stacks["candidate"], env={"GLOO_SOCKET_IFNAME": "no-such-interface"})
    context = msgspec.structs.replace(context, stacks={**context.stacks, "candidate": broken})
    (line,) = NothingReplacedCell(context.plan).run(context).lines
    assert line.verdict is Verdict.UNKNOWN
    assert line.mend
