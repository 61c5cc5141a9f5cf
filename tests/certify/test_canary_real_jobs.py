"""Real canary jobs on gloo: everything is measured in one start, and what a dead or late rank leaves is read."""

import os
import sys

import msgspec
import pytest
from certify_contexts import context_of, left_over

from hangdrill.certify.binding import BindingCell
from hangdrill.certify.canary import CanaryCell
from hangdrill.certify.canary_jobs import CanaryJob, run_canary
from hangdrill.certify.canary_work import work_of
from hangdrill.certify.measures import is_wanted, measured_of, parts_of
from hangdrill.certify.rollback_judge import ROADS, judge_road
from hangdrill.certify.rollback_plants import plant_controls
from hangdrill.drill.waiting import Interrupt
from hangdrill.model.certify_plan import Measure, Topology
from hangdrill.model.errors import Interrupted
from hangdrill.model.verdict import Verdict

pytestmark = pytest.mark.torchrun

ALL = tuple(one for one in Topology if one is not Topology.MULTI_NODE)


def job(directory, **changes) -> CanaryJob:
    given = {
        "python": sys.executable,
        "environ": dict(os.environ),
        "directory": directory / "job",
        "backend": "gloo",
        "ranks": 2,
        "options": ("--steps", "3", "--timeout-s", "30"),
    }
    return CanaryJob(**{**given, **changes})


def test_one_job_measures_every_line_of_a_plan_and_comes_back_after_a_killed_rank(tmp_path):
    context = context_of(tmp_path, topologies=ALL)
    (tmp_path / "tmp").mkdir()
    environ = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    measured = job(tmp_path, parts=parts_of(context.plan), max_restarts=1, environ=environ)
    run = run_canary(measured, context.interrupt)
    assert run.trouble() == ""
    assert not list((tmp_path / "tmp").glob("torchelastic_*"))
    assert not list((tmp_path / "job").glob("*.torchrun"))
    assert {(record.rank, record.attempt) for record in run.ranks} == {(0, 0), (1, 0), (0, 1), (1, 1)}
    lost = [one.name for one in measured_of(context.plan) if one.sample(run) is None]
    assert lost == []
    assert work_of(run) is not None
    assert {record.facts.backend_class for record in run.ranks} == {"ProcessGroupGloo"}
    assert run.of_attempt()[0].facts.mesh == (1, 2)
    assert left_over(tmp_path) == []
    assert not list((tmp_path / "job").glob("meetings*"))


def test_a_plan_of_memory_alone_needs_no_part_of_a_job(tmp_path):
    context = context_of(tmp_path)
    plan = msgspec.structs.replace(context.plan, measures=(Measure.MEMORY_PEAK, Measure.START_TIME))
    assert parts_of(plan) == ()
    run = run_canary(job(tmp_path), context.interrupt)
    assert [one.name for one in measured_of(plan) if is_wanted(one, plan) and one.sample(run) is None] == []


def test_a_job_that_nobody_restarts_leaves_what_it_measured_and_where_it_died(tmp_path):
    run = run_canary(job(tmp_path, parts=("latency", "recover"), max_restarts=0), Interrupt())
    assert run.exit_code not in (0, None)
    assert run.missing() == ()
    assert {record.doing for record in run.ranks} == {"recover"}
    assert run.slowest("all_reduce_4096_s") is not None
    assert "the job ended with" in run.trouble()


def test_a_part_that_needs_gpus_says_so_and_the_others_go_on(tmp_path):
    run = run_canary(job(tmp_path, parts=("latency", "several", "foreign")), Interrupt())
    for record in run.ranks:
        assert "needs" in record.failed["several"]
        assert "needs two GPUs" in record.failed["foreign"]
        assert "all_reduce_4096_s" in record.measures
        assert "destroy_s" in record.measures


def test_a_job_that_is_not_over_in_time_is_ended_and_says_in_what_it_was(tmp_path):
    run = run_canary(job(tmp_path, parts=("latency",), deadline_s=0.5), Interrupt())
    assert run.exit_code is None
    assert left_over(tmp_path) == []


def test_an_interrupt_ends_everything(tmp_path):
    interrupt = Interrupt()
    interrupt.request()
    with pytest.raises(Interrupted):
        run_canary(job(tmp_path, parts=("latency",)), interrupt)
    assert left_over(tmp_path) == []


def test_every_planted_mistake_is_found_in_real_ranks_and_a_right_setting_is_not(tmp_path):
    context = context_of(tmp_path)
    controls = {control.name: control for control in plant_controls(context)}
    assert set(controls) == {
        "rollback/missing", "rollback/late", "rollback/wrong-value-false", "rollback/wrong-value-00",
    }  # fmt: skip
    assert {name for name, control in controls.items() if not control.held} == set()
    assert "not set in this rank" in controls["rollback/missing"].detail
    assert "too late" in controls["rollback/late"].detail
    right = run_canary(job(tmp_path, variables=ROADS["variable"].variables), context.interrupt)
    assert judge_road(ROADS["variable"], right).verdict is Verdict.UNKNOWN  # no group without a GPU, and no mistake


def test_the_binding_cell_sees_where_gloo_works_on_both_stacks(tmp_path):
    context = context_of(tmp_path)
    result = BindingCell(context.plan).run(context)
    (line,) = result.lines
    assert line.verdict is Verdict.PASS
    assert "rank 1 on cpu" in line.detail
    assert line.evidence == ("work/runs.json",)


def test_the_canary_cell_delivers_what_it_promised_and_decides_nothing_from_one_pair(tmp_path):
    context = context_of(tmp_path, pairs=1)
    cell = CanaryCell(context.plan)
    result = cell.run(context)
    assert {line.id for line in result.lines} == {claim.id for claim in cell.claims}
    backend, *others = result.lines
    assert backend.verdict is Verdict.PASS
    assert {line.verdict for line in others} == {Verdict.UNKNOWN}
    assert all(line.baseline and line.candidate for line in others)
    assert {work.stack for work in result.work} == {"baseline", "candidate"}
