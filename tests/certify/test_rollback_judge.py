"""Was every rank rolled back? By class and by what torch registered; every planted mistake has its own sentence."""

from datetime import date

import msgspec
import pytest
from canary_cases import NEW, OLD, canary_run, rank_record

from hangdrill.certify.canary_records import SwitchFacts
from hangdrill.certify.cells import Claim
from hangdrill.certify.rollback import SMOKE_MEASURES, RollbackCell, _smoke_line, record_line
from hangdrill.certify.rollback_judge import ROADS, judge_rank, judge_road, record_problems, release_of
from hangdrill.model.certify_plan import CertifyPlan, RollbackPlan, StackPlan
from hangdrill.model.receipt import Item
from hangdrill.model.verdict import Verdict

VARIABLE, BACKEND = ROADS["variable"], ROADS["backend"]
RIGHT = SwitchFacts(at_exec="0", at_import="0", at_group="0")
GOOD = RollbackPlan(
    owner="platform on call", where="module torch/2.15", verify="hangdrill certify", expires="2027-03-31"
)
TODAY = date(2026, 11, 30)


def rolled_back(rank, **changes):
    given = {"backend_class": "ProcessGroupNCCL", "creators": {"nccl": OLD, "nccl-legacy": OLD}, "switch": RIGHT}
    return rank_record(rank, ranks=3, **{**given, **changes})


def not_rolled_back(rank, switch=None, backend_class="ProcessGroupNCCL2"):
    return rolled_back(
        rank, backend_class=backend_class, creators={"nccl": NEW, "nccl-legacy": OLD}, switch=switch or SwitchFacts()
    )


def job(*records):
    return canary_run(*records, ranks=3)


@pytest.mark.parametrize("road", [VARIABLE, BACKEND])
def test_a_road_that_every_rank_took_passes_and_names_each_rank(road):
    proven = judge_road(road, job(*map(rolled_back, range(3))))
    assert proven.verdict is Verdict.PASS
    assert [proof.rank for proof in proven.ranks] == [0, 1, 2]
    assert {proof.backend_class for proof in proven.ranks} == {"ProcessGroupNCCL"}
    assert "registered before the group was made" in proven.ranks[0].detail


MISTAKES = {
    "is not set in this rank": SwitchFacts(),
    'TORCH_DIST_USE_NCCL2="false" is a wrong value': SwitchFacts(at_import="false", at_group="false"),
    'TORCH_DIST_USE_NCCL2="00" is a wrong value': SwitchFacts(at_import="00", at_group="00"),
    'TORCH_DIST_USE_NCCL2="" is a wrong value': SwitchFacts(at_import="", at_group=""),
    "was set too late": SwitchFacts(at_import=None, at_group="0"),
    "was set and did not take": RIGHT,
}


@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize("said", MISTAKES)
@pytest.mark.parametrize("backend_class", ["ProcessGroupNCCL2", "ProcessGroupGloo", ""])
def test_one_rank_with_a_mistake_fails_the_road_and_is_named(rank, said, backend_class):
    """Whether its group was made, was another one's, or never came to be."""
    bad = not_rolled_back(rank, MISTAKES[said], backend_class)
    proven = judge_road(VARIABLE, job(*(bad if at == rank else rolled_back(at) for at in range(3))))
    assert proven.verdict is Verdict.FAIL
    assert f"rank {rank}: " in proven.detail
    assert said in proven.detail
    assert len(proven.ranks) == 3


def test_the_class_outweighs_what_the_variable_promises():
    lying = rolled_back(0, backend_class="ProcessGroupNCCL2")
    verdict, proof = judge_rank(VARIABLE, 0, lying)
    assert verdict is Verdict.FAIL
    assert "ProcessGroupNCCL2 ran" in proof.detail


@pytest.mark.parametrize("rank", range(3))
def test_a_rank_that_left_nothing_makes_the_road_unknown(rank):
    proven = judge_road(VARIABLE, job(*(rolled_back(at) for at in range(3) if at != rank)))
    assert proven.verdict is Verdict.UNKNOWN
    assert f"rank {rank}: it left no record" in proven.detail


def test_without_a_gpu_a_registered_fallback_is_unknown_and_never_pass():
    on_gloo = job(*(rolled_back(rank, backend_class="ProcessGroupGloo") for rank in range(3)))
    assert judge_road(VARIABLE, on_gloo).verdict is Verdict.UNKNOWN
    assert "no GPU" in judge_road(VARIABLE, on_gloo).detail


def test_a_torch_without_the_name_has_no_fallback():
    gone = job(*(rolled_back(rank, backend_class="", creators={"nccl": NEW}) for rank in range(3)))
    proven = judge_road(BACKEND, gone)
    assert proven.verdict is Verdict.FAIL
    assert "there is no fallback" in proven.detail


def test_a_build_without_nccl_says_nothing_so_it_is_unknown():
    silent = job(*(rolled_back(rank, backend_class="ProcessGroupGloo", creators={}) for rank in range(3)))
    assert judge_road(VARIABLE, silent).verdict is Verdict.UNKNOWN


def test_an_older_torch_that_registers_nothing_is_proven_by_its_class():
    old = job(*(rolled_back(rank, creators={}) for rank in range(3)))
    assert judge_road(VARIABLE, old).verdict is Verdict.PASS


@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize("unseen", SMOKE_MEASURES)
def test_work_that_one_rank_did_not_measure_is_unknown_and_none_is_no_pass(rank, unseen):
    records = [rolled_back(at) for at in range(3)]
    claim, proven = Claim(id="c", item=Item.ROLLBACK, claim="c"), judge_road(VARIABLE, job(*records))
    assert _smoke_line(claim, job(*records), proven, ()).verdict is Verdict.PASS
    del records[rank].measures[unseen]
    records[rank] = msgspec.structs.replace(records[rank], doing="dp")
    line = _smoke_line(claim, job(*records), proven, ())
    assert (line.verdict, unseen in line.detail) == (Verdict.UNKNOWN, True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"owner": " "}, "no owner"),
        ({"where": ""}, "no where"),
        ({"verify": ""}, "no verify"),
        ({"expires": ""}, "no date"),
        ({"expires": "2026-11-30"}, "expired on 2026-11-30"),
        ({"expires": "2020-01-01"}, "expired on 2020-01-01"),
    ],
)
def test_an_ownerless_or_expired_fallback_is_refused(changes, said):
    plan = RollbackPlan(
        **{**{name: getattr(GOOD, name) for name in ("owner", "where", "verify", "expires")}, **changes}
    )
    line = record_line(Claim(id="rollback/record", item=Item.ROLLBACK, claim="c"), plan, TODAY)
    assert line.verdict is Verdict.FAIL
    assert said in line.detail
    assert line.mend


def test_a_good_record_passes_until_the_day_before_it_expires_and_none_is_unknown():
    claim = Claim(id="rollback/record", item=Item.ROLLBACK, claim="c")
    assert record_line(claim, GOOD, date(2027, 3, 30)).verdict is Verdict.PASS
    assert list(record_problems(GOOD, TODAY)) == []
    assert record_line(claim, RollbackPlan(), TODAY).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("text", "release"), [("2.15.0+cu132", (2, 15)), ("2.9.1", (2, 9)), ("", None), ("main", None)]
)
def test_releases_are_numbers(text, release):
    assert release_of(text) == release


def test_a_plan_with_one_road_promises_only_that():
    plan = CertifyPlan(
        title="t",
        baseline=StackPlan(python="a"),
        candidate=StackPlan(python="b"),
        rollback=RollbackPlan(roads=("backend",)),
    )
    ids = {claim.id for claim in RollbackCell(plan).claims}
    assert ids == {"rollback/record", "rollback/backend/proof", "rollback/backend/smoke", "rollback/hang"}
