"""The hang drills as lines: what torch leaves alone on two stacks, and what the collector brings."""

import msgspec
import pytest
from certify_contexts import context_of

from hangdrill.certify.cells import Claim
from hangdrill.certify.drills import alone_line, arrived, drill_cells, hold_scenario, line_of_drill
from hangdrill.drill.scenario_checks import mistakes
from hangdrill.model.certify_plan import Topology
from hangdrill.model.receipt import Item
from hangdrill.model.run import CheckResult, DrillResult, Environment, Timings
from hangdrill.model.scenario import Trigger
from hangdrill.model.verdict import Verdict

CLAIM = Claim(id="drills/alone/arrival", item=Item.RECORDER, claim="c")
SHAPES = (Topology.SINGLE_NODE, Topology.DP, Topology.FSDP, Topology.TP, Topology.PP, Topology.MESH_2D)


def drilled(*ranks: int, of: int = 2, verdict: Verdict | None = None) -> DrillResult:
    """A drill in which these ranks' dumps arrived."""
    marks = {str(rank): Verdict.PASS if rank in ranks else Verdict.FAIL for rank in range(of)}
    found = verdict if verdict is not None else Verdict.PASS if len(ranks) == of else Verdict.FAIL
    check = CheckResult(
        name="every-rank-dumped", verdict=found, ranks=marks, detail=f"{len(ranks)} of {of} dumps arrived"
    )
    return DrillResult(
        scenario="s",
        verdict=found,
        checks=(check,),
        diagnosis=None,
        expected_culprits=(1,),
        timings=Timings(),
        environment=Environment(),
        artifacts=(),
        sentence="rank 1 was held",
    )


@pytest.mark.parametrize(("old", "new"), [((0, 1), (0,)), ((0, 1), (1,)), ((0, 1), ()), ((0,), (1,))])
def test_a_dump_that_only_the_baseline_leaves_fails_and_is_a_difference(old, new):
    line, difference = alone_line(CLAIM, drilled(*old), drilled(*new))
    assert line.verdict is Verdict.FAIL
    assert "collector" in line.mend
    assert difference.what == "native dumps that arrive"
    assert not difference.declared


def test_a_plan_may_declare_the_lost_dump_and_it_stays_a_difference():
    line, difference = alone_line(CLAIM, drilled(0, 1), drilled(0))
    assert line.declarable
    assert (difference.baseline, difference.candidate) == ("ranks 0, 1", "ranks 0")


def test_more_dumps_than_before_are_a_gain():
    line, difference = alone_line(CLAIM, drilled(0), drilled(0, 1))
    assert line.verdict is Verdict.PASS
    assert difference.declared


def test_none_on_either_is_no_difference_and_is_said():
    line, difference = alone_line(CLAIM, drilled(), drilled())
    assert line.verdict is Verdict.PASS
    assert difference is None
    assert "leaves nothing on either" in line.detail


@pytest.mark.parametrize("side", [0, 1])
def test_a_drill_that_cannot_say_what_arrived_makes_the_line_unknown(side):
    results = [drilled(0, 1), drilled(0, 1)]
    results[side] = drilled(0, verdict=Verdict.UNKNOWN)
    line, difference = alone_line(CLAIM, *results)
    assert line.verdict is Verdict.UNKNOWN
    assert difference is None
    assert ("baseline", "candidate")[side] in line.detail


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("marks", [{"0": Verdict.FAIL, "1": Verdict.UNKNOWN}, {}])
def test_a_rank_of_which_one_drill_knows_nothing_makes_the_line_unknown(side, marks):
    results = [drilled(0, 1), drilled(0, 1)]
    (check,) = drilled().checks
    results[side] = msgspec.structs.replace(drilled(), checks=(msgspec.structs.replace(check, ranks=marks),))
    line, difference = alone_line(CLAIM, *results)
    assert (line.verdict, difference) == (Verdict.UNKNOWN, None)


def test_the_collectors_line_is_the_drills_verdict_with_its_failing_checks():
    line = line_of_drill(CLAIM, drilled(0), ())
    assert line.verdict is Verdict.FAIL
    assert "every-rank-dumped fail: 1 of 2 dumps arrived" in line.detail
    assert line.mend
    healthy = line_of_drill(CLAIM, drilled(0, 1), ())
    assert (healthy.verdict, healthy.detail, healthy.mend) == (Verdict.PASS, "rank 1 was held", "")
    assert arrived(drilled(0)) == {0}


@pytest.mark.parametrize("topology", SHAPES)
@pytest.mark.parametrize("backend", ["gloo", "nccl", "nccl-legacy"])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("trigger", [Trigger.COLLECTOR, Trigger.NATIVE])
def test_every_drill_of_a_certification_is_a_valid_scenario(tmp_path, topology, backend, ranks, trigger):
    plan = context_of(tmp_path, backend=backend, nproc_per_node=ranks).plan
    scenario = hold_scenario(plan, topology, trigger, env={"TORCH_DIST_USE_NCCL2": "0"})
    assert list(mistakes(scenario)) == []
    assert scenario.expect.culprit == ranks - 1


def test_each_topology_has_a_drill_and_nothing_is_promised_twice(tmp_path):
    cells = drill_cells(context_of(tmp_path, topologies=(*SHAPES, Topology.MULTI_NODE)).plan)
    assert [cell.id for cell in cells][-1] == "drills/alone"
    assert len({cell.id for cell in cells}) == len(SHAPES) + 1
