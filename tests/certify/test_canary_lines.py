"""From canary runs to lines: no false alarm in ten certifications, what is planted found in ten, nothing lost."""

import math

import msgspec
import pytest
from canary_cases import canary_run, pair_runs, rank_record, whole_run

from hangdrill.certify.canary import CanaryCell, canary_cells
from hangdrill.certify.canary_lines import judge_measure
from hangdrill.certify.canary_runs import PairRuns
from hangdrill.certify.canary_work import work_of
from hangdrill.certify.compare_samples import Limit, Rule
from hangdrill.certify.declared import accepted, marked
from hangdrill.certify.measures import LIMITS, limit_of, measured_of, parts_of
from hangdrill.model.certify_plan import CertifyPlan, Measure, Price, StackPlan, Threshold, Topology, WorkPlan
from hangdrill.model.verdict import Verdict

TOPOLOGIES = (Topology.SINGLE_NODE, Topology.DP, Topology.FSDP)
RUNS = range(10)


def plan_of(**changes) -> CertifyPlan:
    return CertifyPlan(
        title="t",
        baseline=StackPlan(python="old"),
        candidate=StackPlan(python="new"),
        topologies=TOPOLOGIES,
        workload=WorkPlan(backend="nccl"),
        **changes,
    )


def judged(runs, **changes):
    return CanaryCell(plan_of(**changes)).judge(runs, ())


def by_measure(result):
    return {line.id.rsplit("/", 1)[1]: line for line in result.lines}


def test_the_same_stack_twice_gives_no_difference_in_ten_of_ten():
    for seed in RUNS:
        result = judged(pair_runs(seed=seed))
        assert result.differences == ()
        assert Verdict.FAIL not in {line.verdict for line in result.lines}


def test_a_slowdown_of_a_fifth_is_found_in_ten_of_ten_and_named_line_by_line():
    slower = {"dp/throughput", "fsdp/throughput", "single-node/recovery-time", "single-node/checkpoint-save-time"}
    for seed in RUNS:
        result = judged(pair_runs(24, scale=1.2, seed=seed))
        failed = {line.id.removeprefix("canary/stacks/") for line in result.lines if line.verdict is Verdict.FAIL}
        assert slower <= failed
        assert {one.line.removeprefix("canary/stacks/") for one in result.differences} == failed
        assert not any(one.declared for one in result.differences)


def test_two_hundred_megabytes_more_are_found_in_ten_of_ten_and_nothing_else():
    memory = {"memory-before-first-step", "memory-per-unused-group", "memory-peak", "memory-of-p2p"}
    for seed in RUNS:
        result = judged(pair_runs(more_mb=200, seed=seed))
        assert {name for name, line in by_measure(result).items() if line.verdict is Verdict.FAIL} == memory
        assert {one.what for one in result.differences} == {f"{name} (single-node)" for name in memory}


def test_a_gain_is_a_difference_that_needs_no_leave():
    result = judged(pair_runs(24, scale=0.7))
    assert result.differences
    assert all(one.declared for one in result.differences)
    assert Verdict.FAIL not in {line.verdict for line in result.lines}


def test_a_plan_may_declare_what_is_worse_and_nothing_else():
    result = judged(pair_runs(more_mb=200))
    assert {line.declarable for line in result.lines if line.verdict is Verdict.FAIL} == {True}
    patterns = ("canary/*/memory-*",)
    lines = accepted(result.lines, marked(result.differences, patterns), patterns)
    assert Verdict.FAIL not in {line.verdict for line in lines}
    lost = judged(PairRuns(baseline=(canary_run(),) * 8, candidate=(canary_run(rank_record(0), exit_code=1),) * 8))
    assert {line.declarable for line in lost.lines if line.verdict is Verdict.FAIL} == {False}


def test_every_line_says_its_rule_its_samples_and_its_interval():
    line = by_measure(judged(pair_runs(12)))["init-time"]
    assert len(line.baseline) == len(line.candidate) == 12
    assert "10 % and 0.1 s higher" in line.rule
    low, high = line.interval
    assert low <= line.ratio <= high
    assert "ratio" in line.detail
    assert line.unit == "s"


def test_the_promised_lines_are_the_delivered_ones():
    cell = CanaryCell(plan_of())
    assert {claim.id for claim in cell.claims} == {line.id for line in cell.judge(pair_runs(8), ()).lines}


def test_few_pairs_are_unknown_and_say_how_many_are_needed():
    line = by_measure(judged(pair_runs(3)))["throughput"]
    assert line.verdict is Verdict.UNKNOWN
    assert "3 of the 8 pairs" in line.detail


def undecided(spread: float, **facts):
    """The line of pairs whose candidate takes longer and shorter by turns; eight of them decide nothing."""

    def run(init_s: float):
        return canary_run(*(rank_record(rank, init_s=init_s, **facts) for rank in (0, 1)))

    runs = PairRuns(
        baseline=(run(1.0),) * 8,
        candidate=tuple(run(math.exp(spread if pair % 2 else -spread)) for pair in range(8)),
    )
    init = next(one for one in measured_of(plan_of()) if one.measure is Measure.INIT_TIME)
    line = judge_measure(init, runs, cell="c", limit=Limit(), rule=Rule()).line
    assert line.verdict is Verdict.UNKNOWN
    return line


def test_as_many_pairs_as_somebody_would_run_are_advised_with_the_limit_by_its_name():
    wider = "set a wider limit in the plan (thresholds.init-time)"
    assert undecided(0.15).mend == f"run about 20 pairs (workload.pairs), on a quieter machine, or {wider}"


@pytest.mark.parametrize(
    ("facts", "leaves_it"),
    [
        ({"backend_class": "ProcessGroupGloo", "facts": {"device": "cpu"}}, True),
        ({"backend_class": "ProcessGroupGloo", "facts": {"device": "cuda:0"}}, False),
        ({"backend_class": "ProcessGroupNCCL2", "facts": {"device": ""}}, False),
    ],
)
def test_where_more_pairs_hardly_help_it_says_what_does_and_gpus_are_only_named_where_none_measured(facts, leaves_it):
    mend = undecided(0.3, **facts).mend
    assert "workload.pairs" not in mend
    assert "over 4 times as many" in mend
    assert "a quieter machine" in mend
    assert "a wider limit in the plan (thresholds.init-time)" in mend
    assert ("leave this measure to a host with GPUs" in mend) is leaves_it


@pytest.mark.parametrize("pairs", [1, 3, 7])
def test_too_few_pairs_ask_for_the_fewest_however_many_times_that_is(pairs):
    assert "run about 8 pairs" in by_measure(judged(pair_runs(pairs)))["throughput"].mend


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_a_measure_that_one_rank_of_the_candidate_lost_is_a_fail_and_lost_by_both_unknown(rank):
    whole = canary_run(*(rank_record(at, ranks=4) for at in range(4)), ranks=4)
    cut = canary_run(*(rank_record(at, ranks=4) for at in range(4) if at != rank), ranks=4, exit_code=1)
    one = measured_of(plan_of())[0]

    def line(old, new):
        runs = PairRuns(baseline=(whole,) * 7 + (old,), candidate=(whole,) * 7 + (new,))
        return judge_measure(one, runs, cell="c", limit=Limit(), rule=Rule()).line

    assert line(whole, cut).verdict is Verdict.FAIL
    assert f"ranks {rank} left no record" in line(whole, cut).detail
    assert line(cut, whole).verdict is Verdict.UNKNOWN
    assert line(cut, cut).verdict is Verdict.UNKNOWN
    assert line(whole, whole).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("parts", "told"), [((), "latency: first"), (("p2p",), "p2p: own"), (("dp",), "latency: first")]
)
def test_a_lost_measure_is_told_with_the_failure_of_its_own_part(parts, told):
    ranks = (rank_record(0, failed={"latency": "first"}), rank_record(1, failed={"tp": "other", "p2p": "own"}))
    assert canary_run(*ranks).trouble(parts).endswith(told)


def test_each_measure_knows_the_parts_that_measure_it():
    of = {one.name: one.parts for one in measured_of(plan_of())}
    assert (of["single-node/memory-of-p2p"], of["fsdp/throughput"]) == (("p2p",), ("fsdp",))
    assert (of["single-node/recovery-time"], of["single-node/init-time"]) == (("dp", "recover"), ())


def test_no_runs_at_all_are_unknown():
    result = judged(PairRuns(gave_up="the candidate made no process group"))
    assert {line.verdict for line in result.lines} == {Verdict.UNKNOWN}


def test_two_backend_classes_among_the_ranks_of_a_stack_fail_and_between_stacks_are_a_difference():
    old = canary_run(*(rank_record(rank, backend_class="ProcessGroupNCCL") for rank in (0, 1)))
    new = canary_run()
    mixed = canary_run(rank_record(0), rank_record(1, backend_class="ProcessGroupNCCL"))
    one = judged(PairRuns(baseline=(old,), candidate=(new,)))
    assert one.lines[0].verdict is Verdict.PASS
    assert (one.differences[0].baseline, one.differences[0].candidate) == ("ProcessGroupNCCL", "ProcessGroupNCCL2")
    assert judged(PairRuns(baseline=(old,), candidate=(mixed,))).lines[0].verdict is Verdict.FAIL


def test_the_slowest_rank_counts():
    run = canary_run(rank_record(0, init_s=0.1), rank_record(1, init_s=3.0))
    assert run.slowest("init_s") == 3.0
    assert run.slowest("never_measured_s") is None


def test_work_counts_the_steps_and_the_whole_time_but_what_only_measures():
    run = whole_run(noise=0.0)
    steps, seconds = work_of(run)
    assert steps == 46
    assert seconds == pytest.approx(run.wall_s - 1.0, abs=0.5)  # part_groups_s
    assert work_of(msgspec.structs.replace(run, exit_code=1)) is None
    work = judged(pair_runs(8), price=Price(per_hour=10.0)).work[0]
    assert work.steps_per_price == pytest.approx(work.steps_per_hour / 10, rel=0.01)


def test_a_job_that_did_not_come_back_has_no_recovery_time():
    dead = canary_run(rank_record(0), rank_record(1, times_ns={"killed": 1}), exit_code=1)
    recovery = next(one for one in measured_of(plan_of()) if one.measure is Measure.RECOVERY_TIME)
    assert recovery.sample(dead) is None
    assert recovery.sample(whole_run(noise=0.0)) == pytest.approx(8.0)


def test_a_plans_threshold_stands_for_the_whole_measure():
    given = {Measure.INIT_TIME: Threshold(ratio=0.5)}
    assert limit_of(Measure.INIT_TIME, given) == Limit(ratio=0.5, absolute=None)
    assert limit_of(Measure.INIT_TIME, {Measure.INIT_TIME: Threshold()}).ratio == LIMITS[Measure.INIT_TIME].ratio
    assert limit_of(Measure.THROUGHPUT, {}).higher_is_better
    assert set(LIMITS) == set(Measure)


def test_recovery_is_the_last_part_and_a_lone_rank_sends_nothing():
    assert parts_of(plan_of())[-1] == "recover"
    alone = msgspec.structs.replace(plan_of(), workload=WorkPlan(nproc_per_node=1))
    assert "p2p" not in parts_of(alone)


def test_what_a_plan_leaves_out_is_not_run_and_stays_on_the_page_as_unknown():
    plan = plan_of(measures=(Measure.MEMORY_PEAK, Measure.P2P_LATENCY))
    assert parts_of(plan) == ("p2p",)
    cell = CanaryCell(plan)
    lines = {line.id: line for line in cell.judge(pair_runs(16, more_mb=200), ()).lines}
    assert set(lines) == {claim.id for claim in CanaryCell(plan_of()).claims}
    out = {name for name, line in lines.items() if "leaves it out" in line.detail}
    assert {name.rsplit("/", 1)[1] for name in lines.keys() - out} == {
        "backend", "memory-peak", "p2p-latency-4kb", "p2p-latency-4mb", "p2p-latency-256mb",
    }  # fmt: skip
    assert {lines[name].verdict for name in out} == {Verdict.UNKNOWN}
    assert lines["canary/stacks/single-node/memory-peak"].verdict is Verdict.FAIL


def test_work_from_start_to_end_needs_the_recovery():
    plan = plan_of(measures=tuple(one for one in Measure if one is not Measure.RECOVERY_TIME))
    line = next(line for line in CanaryCell(plan).judge(pair_runs(8), ()).lines if "whole-job" in line.id)
    assert "leaves it out" in line.detail
    assert "recover" not in parts_of(plan)


def test_cells_of_a_plan_have_their_own_ids_and_variants_are_for_nccl():
    ids = [cell.id for cell in canary_cells(plan_of())]
    assert ids == ["canary/stacks", "canary/nccl-legacy", "canary/nccl-lazy"]
    gloo = msgspec.structs.replace(plan_of(), workload=WorkPlan(), topologies=(Topology.MULTI_NODE,))
    assert [cell.id for cell in canary_cells(gloo)] == ["canary/stacks", "canary/multi-node"]


def test_a_variant_of_nccl_is_an_answer_with_numbers_and_never_a_fail():
    cell = next(cell for cell in canary_cells(plan_of()) if cell.id == "canary/nccl-legacy")
    result = cell.judge(pair_runs(16, more_mb=460), ())
    assert Verdict.FAIL not in {line.verdict for line in result.lines}
    named = {one.what for one in result.differences}
    assert "memory-before-first-step (single-node), nccl-legacy -> nccl" in named
    assert {claim.id for claim in cell.claims} == {line.id for line in result.lines}


@pytest.mark.parametrize(("failed", "doing"), [({"groups": "RuntimeError: no memory"}, ""), ({}, "groups")])
def test_a_measure_is_not_taken_from_the_ranks_that_were_left(failed: dict[str, str], doing: str) -> None:
    lost = rank_record(1, failed=failed, doing=doing)
    lost.measures.pop("group_bytes")
    assert canary_run(rank_record(0), lost).slowest("group_bytes") is None
    assert canary_run(rank_record(0), lost).slowest("init_s") == 0.8


@pytest.mark.parametrize("doing", ["", "recover"])
def test_a_rank_that_takes_no_part_in_a_measure_is_not_waited_for(doing: str) -> None:
    idle = rank_record(1, doing=doing)
    idle.measures.pop("p2p_4096_s")
    assert canary_run(rank_record(0), idle).slowest("p2p_4096_s") == 100e-6
