"""What stacks do with the ways to bind a rank to a GPU: answers as H200s gave them, and what follows from two."""

import pytest
from canary_cases import canary_run, rank_record

from hangdrill.certify.binding import BindingCell
from hangdrill.certify.binding_judge import ATTEMPTS, Answer, Tried, judge_attempt, judge_pair
from hangdrill.certify.cells import Claim
from hangdrill.model.certify_plan import CertifyPlan, StackPlan, WorkPlan
from hangdrill.model.receipt import Item
from hangdrill.model.verdict import Verdict

BY_NAME = {attempt.name: attempt for attempt in ATTEMPTS}
MESSAGE = "Expected tensor on cuda:0 but found tensor on cuda:1"


def failed_start(rank, why="RuntimeError: Duplicate GPU detected"):
    record = rank_record(rank, failed={"init": why})
    record.measures.pop("first_collective_s")
    return record


def asked(part, *answers, error=""):
    return canary_run(
        *(
            rank_record(rank, facts={part: answer, f"{part}_error": error if answer == "refused" else ""})
            for rank, answer in enumerate(answers)
        ),
        ranks=len(answers),
    )


def pair(name, old, new, **more):
    claim = Claim(id=f"binding/{name}", item=Item.BINDING, claim="c")
    return judge_pair(claim, BY_NAME[name], Tried(answer=old), Tried(answer=new), **more)


def test_ranks_on_their_own_gpus_are_accepted():
    assert judge_attempt(BY_NAME["explicit"], canary_run()) == Tried(
        answer=Answer.ACCEPTED, detail="rank 0 on cuda:0, rank 1 on cuda:1"
    )


def test_a_gpu_with_the_same_index_on_another_host_is_another_gpu():
    run = canary_run(rank_record(0, facts={"device": "cuda:0"}), rank_record(1, facts={"device": "cuda:0"}))
    assert judge_attempt(BY_NAME["derived"], run).detail.startswith("shared: ")


def test_ranks_that_silently_share_a_gpu_fail_whatever_was_tried():
    shared = Tried(answer=Answer.ACCEPTED, detail="shared: rank 0 on cuda:0, rank 1 on cuda:0")
    for name in ("explicit", "shared"):
        claim = Claim(id=f"binding/{name}", item=Item.BINDING, claim="c")
        line, _ = judge_pair(claim, BY_NAME[name], shared, shared)
        assert line.verdict is Verdict.FAIL


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_that_is_refused_is_enough(rank):
    run = canary_run(*(failed_start(at) if at == rank else rank_record(at) for at in (0, 1)), exit_code=1)
    tried = judge_attempt(BY_NAME["shared"], run)
    assert tried.answer is Answer.REFUSED
    assert "Duplicate GPU" in tried.detail


def test_a_job_that_had_to_be_ended_hung_and_an_aborted_one_refused():
    stuck = rank_record(0, doing="init")
    stuck.measures.pop("first_collective_s")
    assert judge_attempt(BY_NAME["shared"], canary_run(stuck, rank_record(1), exit_code=None)).answer is Answer.HUNG
    assert judge_attempt(BY_NAME["shared"], canary_run(stuck, rank_record(1), exit_code=1)).answer is Answer.REFUSED


def test_a_rank_without_a_record_is_unknown_and_never_an_answer():
    assert judge_attempt(BY_NAME["explicit"], canary_run(rank_record(0), exit_code=1)).answer is Answer.UNKNOWN


def test_a_tensor_of_another_gpu_refused_by_the_candidate_alone_is_a_fail_and_a_difference():
    old = judge_attempt(BY_NAME["foreign"], asked("foreign", "accepted", "accepted"))
    new = judge_attempt(BY_NAME["foreign"], asked("foreign", "refused", "refused", error=MESSAGE))
    claim = Claim(id="binding/foreign", item=Item.BINDING, claim="c")
    line, difference = judge_pair(claim, BY_NAME["foreign"], old, new)
    assert line.verdict is Verdict.FAIL
    assert MESSAGE in line.detail
    assert (difference.baseline, difference.candidate) == ("accepted", f"refused ({MESSAGE})")
    assert not difference.declared
    assert line.declarable


def test_no_plan_may_excuse_ranks_that_do_not_start():
    line, _ = pair("explicit", Answer.ACCEPTED, Answer.REFUSED)
    assert (line.verdict, line.declarable) == (Verdict.FAIL, False)


@pytest.mark.parametrize(
    ("name", "old", "new", "verdict"),
    [
        ("foreign", Answer.ACCEPTED, Answer.ACCEPTED, Verdict.PASS),
        ("foreign", Answer.REFUSED, Answer.REFUSED, Verdict.PASS),
        ("foreign", Answer.REFUSED, Answer.ACCEPTED, Verdict.PASS),
        ("foreign", Answer.ACCEPTED, Answer.WRONG, Verdict.FAIL),
        ("foreign", Answer.REFUSED, Answer.HUNG, Verdict.FAIL),
        ("foreign", Answer.UNKNOWN, Answer.REFUSED, Verdict.UNKNOWN),
        ("foreign", Answer.UNKNOWN, Answer.ACCEPTED, Verdict.UNKNOWN),
        ("several", Answer.UNKNOWN, Answer.ACCEPTED, Verdict.UNKNOWN),
        ("explicit", Answer.UNKNOWN, Answer.ACCEPTED, Verdict.UNKNOWN),
        ("explicit", Answer.UNKNOWN, Answer.HUNG, Verdict.FAIL),
        ("shared", Answer.UNKNOWN, Answer.REFUSED, Verdict.UNKNOWN),
        ("foreign", Answer.ACCEPTED, Answer.UNKNOWN, Verdict.UNKNOWN),
        ("several", Answer.ACCEPTED, Answer.REFUSED, Verdict.FAIL),
        ("shared", Answer.REFUSED, Answer.REFUSED, Verdict.PASS),
        ("shared", Answer.REFUSED, Answer.HUNG, Verdict.FAIL),
        ("shared", Answer.ACCEPTED, Answer.ACCEPTED, Verdict.FAIL),
        ("explicit", Answer.REFUSED, Answer.REFUSED, Verdict.FAIL),
        ("derived", Answer.ACCEPTED, Answer.ACCEPTED, Verdict.PASS),
        ("derived", Answer.ACCEPTED, Answer.HUNG, Verdict.FAIL),
    ],
)
def test_what_two_answers_come_to(name, old, new, verdict):
    line, difference = pair(name, old, new)
    assert line.verdict is verdict
    assert bool(line.mend) is (verdict is not Verdict.PASS)
    assert (difference is not None) is (old is not new and Answer.UNKNOWN not in (old, new))


@pytest.mark.parametrize("name", BY_NAME)
def test_a_stack_that_was_not_seen_is_named_with_its_log(name):
    line, _ = pair(name, Answer.UNKNOWN, BY_NAME[name].wanted or Answer.ACCEPTED)
    assert (line.verdict, "log of the baseline" in line.mend) == (Verdict.UNKNOWN, True)


def test_a_part_that_could_not_be_tried_is_unknown_with_the_reason():
    run = canary_run(*(rank_record(rank, failed={"foreign": "RuntimeError: needs two GPUs"}) for rank in (0, 1)))
    tried = judge_attempt(BY_NAME["foreign"], run)
    assert tried.answer is Answer.UNKNOWN
    assert "needs two GPUs" in tried.detail


def test_several_gpus_in_one_process_are_tried_with_one_rank():
    assert judge_attempt(BY_NAME["several"], asked("several", "accepted")).answer is Answer.ACCEPTED


def test_on_gloo_only_the_place_of_the_ranks_is_looked_at_and_no_gpu_is_needed():
    def cell(backend, script=None):
        return BindingCell(
            CertifyPlan(
                title="t",
                baseline=StackPlan(python="a"),
                candidate=StackPlan(python="b"),
                workload=WorkPlan(backend=backend, script=script),
            )
        )

    assert [claim.id for claim in cell("gloo").claims] == ["binding/explicit"]
    assert cell("gloo").needs.gpus == 0
    assert cell("nccl").needs.gpus == 2
    assert len(cell("nccl", "train.py").claims) == len(ATTEMPTS) + 1
