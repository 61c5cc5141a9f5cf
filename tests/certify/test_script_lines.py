"""The user's own script as lines: its end, its work, its time and memory; judged from recorded runs alone."""

import random
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from certify_contexts import context_of

from hangdrill.certify.canary_records import CanaryRun, RankFacts, RankRecord, read_run
from hangdrill.certify.canary_runs import PairRuns
from hangdrill.certify.declared import accepted, marked
from hangdrill.certify.matrix import cells_of
from hangdrill.certify.running import key_of
from hangdrill.certify.script_cells import ScriptCell, script_cells, script_scenario
from hangdrill.certify.script_jobs import _hopeless, arguments_of, placement_of, seed_variables
from hangdrill.certify.stacks import Stack
from hangdrill.drill.scenario_checks import mistakes
from hangdrill.model.certify_plan import CertifyPlan, Measure
from hangdrill.model.receipt import Item
from hangdrill.model.verdict import Verdict
from hangdrill.rank.canary.record import Record
from hangdrill.rank.canary.script import Watch, after_import
from hangdrill.rank.record import Record as Counts

PAIRS = 16
WORK = ((30, 4), (30, 4), (30, 4))


def ran(work=WORK, *, wall_s=10.0, exit_code: int | None = 0, hooked=1.0, steps=9.0, said="", **more) -> CanaryRun:
    """One run of the script. work: (collectives, p2p) of each rank."""
    ranks = tuple(
        RankRecord(
            rank=rank,
            world_size=len(work),
            measures={"collectives": c, "p2p": p, "steps": steps, "hooked": hooked, "host_peak_bytes": 5e8, **more},
            facts=RankFacts(backend_class="ProcessGroupGloo"),
        )
        for rank, (c, p) in enumerate(work)
    )
    return CanaryRun(world_size=len(work), ranks=ranks, exit_code=exit_code, wall_s=wall_s, last_line=said)


def many(pairs=PAIRS, *, scale=1.0, seed=0, **more) -> tuple[CanaryRun, ...]:
    """Runs on a machine with noise."""
    dice = random.Random(seed)
    return tuple(ran(wall_s=10 * scale * dice.lognormvariate(0, 0.02), **more) for _ in range(pairs))


def plan_of(directory: Path, **work) -> CertifyPlan:
    script = directory / "train.py"
    script.write_text("")
    return context_of(directory, script=script, **work).plan


def judged(directory: Path, old, new, **more):
    result = ScriptCell(plan_of(directory)).judge(PairRuns(baseline=tuple(old), candidate=tuple(new)), (), **more)
    return {line.id.rsplit("/", 1)[1]: line for line in result.lines}, result


def test_every_promised_line_passes_for_one_stack_beside_itself(tmp_path):
    lines, result = judged(tmp_path, many(), many(seed=1))
    assert {line.id for line in result.lines} == {claim.id for claim in ScriptCell(plan_of(tmp_path)).claims}
    assert {name: line.verdict for name, line in lines.items()} == dict.fromkeys(lines, Verdict.PASS)
    assert set(lines) == {"ends", "same-work", "whole-job-time", "memory-peak"}
    assert result.differences == ()
    told = "30 collectives, 4 p2p operations and 9 optimizer steps a rank, in each of 32 runs; ProcessGroupGloo on both"
    assert lines["same-work"].detail == told
    assert lines["memory-peak"].item is Item.MEMORY


def test_a_slower_script_is_found_and_named(tmp_path):
    lines, result = judged(tmp_path, many(), many(seed=1, scale=1.2))
    assert [name for name, line in lines.items() if line.verdict is Verdict.FAIL] == ["whole-job-time"]
    assert lines["whole-job-time"].declarable
    assert [one.line for one in result.differences] == ["canary/script/whole-job-time"]


@pytest.mark.parametrize("name", ["host_peak_bytes", "gpu_peak_bytes"])
def test_more_memory_is_found_on_the_device_that_the_script_uses(tmp_path, name):
    gpu = {"gpu_peak_bytes": 3e9} if name == "gpu_peak_bytes" else {}
    lines, _ = judged(tmp_path, many(**gpu), many(**{**gpu, name: 3.4e9}))
    assert lines["memory-peak"].verdict is Verdict.FAIL
    assert lines["memory-peak"].candidate[0] == pytest.approx(3400)


def test_memory_of_the_host_is_not_looked_at_where_the_script_has_gpus(tmp_path):
    lines, _ = judged(tmp_path, many(gpu_peak_bytes=3e9), many(gpu_peak_bytes=3e9, host_peak_bytes=9e9))
    assert lines["memory-peak"].verdict is Verdict.PASS


def test_a_script_that_fails_on_the_candidate_alone_fails(tmp_path):
    broken = ran(exit_code=1, said="ValueError: no such layer")
    lines, _ = judged(tmp_path, many(), (*many(PAIRS - 1), broken))
    assert lines["ends"].verdict is Verdict.FAIL
    assert lines["ends"].detail == (
        "runs that did not end with exit code 0: 1 of 16 on the candidate: exit code 1: ValueError: no such layer"
    )
    assert not lines["ends"].declarable
    assert lines["whole-job-time"].verdict is Verdict.FAIL


@pytest.mark.parametrize("candidate", [0, 1])
def test_a_script_that_fails_on_the_baseline_proves_nothing(tmp_path, candidate):
    lines, _ = judged(tmp_path, [ran(exit_code=1)], [ran(exit_code=candidate)])
    assert {line.verdict for line in lines.values()} == {Verdict.UNKNOWN}
    assert "on the baseline" in lines["ends"].detail
    assert ("on the candidate" in lines["ends"].detail) == bool(candidate)
    assert "no run of the script ended well" in lines["same-work"].detail


def test_a_script_that_never_ends_says_how_long_was_waited(tmp_path):
    lines, _ = judged(tmp_path, many(), (*many(PAIRS - 1), ran(exit_code=None, wall_s=300)))
    assert lines["ends"].detail.endswith("1 of 16 on the candidate: not over in 300 s")


def test_without_any_pair_nothing_is_known(tmp_path):
    lines, _ = judged(tmp_path, (), ())
    assert {line.verdict for line in lines.values()} == {Verdict.UNKNOWN}


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_that_does_fewer_collectives_on_the_candidate_fails_with_both_numbers(tmp_path, rank):
    less = tuple((28, 4) if at == rank else pair for at, pair in enumerate(WORK))
    lines, result = judged(tmp_path, many(), many(work=less))
    assert lines["same-work"].verdict is Verdict.FAIL
    assert f"rank {rank} 28 collectives, 4 p2p operations" in lines["same-work"].detail
    (difference,) = result.differences
    assert (difference.what, difference.declared) == ("operations of your script", False)
    assert lines["whole-job-time"].detail.endswith("not proven to be of the same work: canary/script/same-work")


def test_other_p2p_operations_are_other_work_too(tmp_path):
    lines, _ = judged(tmp_path, many(), many(work=((30, 4), (30, 5), (30, 4))))
    assert lines["same-work"].verdict is Verdict.FAIL


def test_fewer_steps_of_the_optimizers_are_other_work_too(tmp_path):
    lines, _ = judged(tmp_path, many(work=((1, 0),) * 2, hooked=0.0), many(work=((1, 0),) * 2, hooked=0.0, steps=8.0))
    assert lines["same-work"].verdict is Verdict.FAIL
    assert lines["same-work"].detail.startswith(
        "baseline 1 collectives and 9 optimizer steps a rank; candidate 1 collectives and 8 optimizer steps a rank"
    )


def test_a_plan_may_declare_that_the_candidate_does_other_work(tmp_path):
    _, result = judged(tmp_path, many(), many(work=((28, 4),) * 3))
    patterns = ("canary/script/same-work",)
    (difference,) = marked(result.differences, patterns)
    assert difference.declared
    verdicts = {line.id: line.verdict for line in accepted(result.lines, (difference,), patterns)}
    assert verdicts["canary/script/same-work"] is Verdict.PASS


@pytest.mark.parametrize("side", [0, 1])
def test_a_stack_whose_own_runs_differ_can_be_compared_with_nothing(tmp_path, side):
    sides = [many(), many()]
    sides[side] = (*many(PAIRS - 1), ran(((31, 4),) * 3))
    lines, result = judged(tmp_path, *sides)
    assert lines["same-work"].verdict is Verdict.UNKNOWN
    assert ("baseline", "candidate")[side] in lines["same-work"].detail
    assert "HANGDRILL_SEED" in lines["same-work"].mend
    assert result.differences == ()


def test_what_a_failed_run_did_is_no_difference_of_work(tmp_path):
    lines, _ = judged(tmp_path, many(), (*many(PAIRS - 1), ran(((3, 0),) * 3, exit_code=1)))
    assert lines["same-work"].verdict is Verdict.PASS


def test_a_script_without_a_process_group_is_unknown(tmp_path):
    lines, _ = judged(tmp_path, many(work=((0, 0),) * 2), many(work=((0, 0),) * 2))  # it has an optimizer
    assert lines["same-work"].verdict is Verdict.UNKNOWN
    assert "no operation" in lines["same-work"].detail


def test_a_rank_that_left_no_count_is_unknown(tmp_path):
    whole = ran()
    cut = msgspec.structs.replace(whole, ranks=whole.ranks[:2])
    lines, _ = judged(tmp_path, many(), (*many(PAIRS - 1), cut))
    assert lines["same-work"].verdict is Verdict.UNKNOWN
    assert lines["same-work"].detail == "candidate: a rank left no count of its operations"


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("side", [0, 1])
def test_a_count_that_was_cut_short_proves_no_same_work(tmp_path, side, rank):
    """As of a rank that replaces itself by another program: the last number it wrote is not that of its end."""
    whole = ran()
    ranks = tuple(msgspec.structs.replace(one, doing="script" if one.rank == rank else "") for one in whole.ranks)
    sides = [many(), many()]
    sides[side] = (*many(PAIRS - 1), msgspec.structs.replace(whole, ranks=ranks))
    lines, result = judged(tmp_path, *sides)
    assert lines["same-work"].verdict is Verdict.UNKNOWN
    role = ("baseline", "candidate")[side]
    assert lines["same-work"].detail.startswith(f"{role}: rank {rank} ended by a way that Python does not see")
    assert result.differences == ()


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("side", [0, 1])
def test_an_exit_code_of_a_job_in_which_a_rank_was_not_seen_proves_nothing(tmp_path, side, rank):
    """As where a mount lies over the run's directory, or something else was started in the place of the script."""
    whole = ran()
    sides = [many(), many()]
    unseen = msgspec.structs.replace(whole, ranks=tuple(one for one in whole.ranks if one.rank != rank))
    sides[side] = (*many(PAIRS - 1), unseen)
    lines, result = judged(tmp_path, *sides)
    assert lines["ends"].verdict is Verdict.UNKNOWN
    assert f"ranks {rank} left no record" in lines["ends"].detail
    samples = result.samples["whole-job-time"]
    assert len(samples["baseline"]) == len(samples["candidate"]) == PAIRS - 1


def test_a_rank_with_more_groups_than_are_counted_is_unknown_and_says_why(tmp_path):
    whole = ran()
    first = msgspec.structs.replace(whole.ranks[0], failed={"count": "group 256 is not counted"})
    del first.measures["collectives"]
    cut = msgspec.structs.replace(whole, ranks=(first, *whole.ranks[1:]))
    lines, _ = judged(tmp_path, many(), (*many(PAIRS - 1), cut))
    assert lines["same-work"].verdict is Verdict.UNKNOWN
    assert lines["same-work"].detail == "candidate: rank 0 could not be counted: group 256 is not counted"


def test_stacks_that_were_not_counted_alike_are_unknown(tmp_path):
    lines, _ = judged(tmp_path, many(hooked=0.0), many())
    assert lines["same-work"].verdict is Verdict.UNKNOWN
    assert "not counted alike" in lines["same-work"].detail
    lines, _ = judged(tmp_path, many(hooked=0.0), many(hooked=0.0), placement="wrapped")
    assert lines["same-work"].verdict is Verdict.PASS
    assert "C++" in lines["same-work"].detail


def test_a_measure_that_the_plan_leaves_out_stays_on_the_page(tmp_path):
    plan = msgspec.structs.replace(plan_of(tmp_path), measures=(Measure.MEMORY_PEAK,))
    result = ScriptCell(plan).judge(PairRuns(baseline=many(), candidate=many(scale=2.0)), ())
    line = next(line for line in result.lines if line.id == "canary/script/whole-job-time")
    assert (line.verdict, "leaves it out" in line.detail) == (Verdict.UNKNOWN, True)


def test_only_a_plan_with_a_script_has_cells_for_it(tmp_path):
    assert script_cells(context_of(tmp_path).plan) == ()
    assert [cell.id for cell in script_cells(plan_of(tmp_path))] == ["canary/script", "drills/collector/script"]
    assert [cell.id for cell in script_cells(plan_of(tmp_path, nproc_per_node=1))] == ["canary/script"]
    assert {"canary/script", "drills/collector/script"} <= {cell.id for cell in cells_of(plan_of(tmp_path))}


def test_the_estimate_is_a_guess_that_no_run_may_exceed(tmp_path):
    cell = ScriptCell(plan_of(tmp_path, pairs=3, deadline_s=10))
    assert cell.estimate_s == 60
    assert "10 s a run is a guess" in cell.title


def test_an_edited_script_and_other_arguments_are_measured_again(tmp_path):
    plan = plan_of(tmp_path)
    other = plan_of(tmp_path, args=("--steps", "9"))
    keys = {key_of(ScriptCell(one), one, {}) for one in (plan, other)}
    (tmp_path / "train.py").write_text("# edited")
    keys.add(key_of(ScriptCell(plan), plan, {}))
    assert len(keys) == 3


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_the_drill_of_a_script_is_a_valid_scenario(tmp_path, ranks, backend):
    scenario = script_scenario(plan_of(tmp_path, nproc_per_node=ranks, backend=backend), args=("a",), env={"A": "b"})
    assert list(mistakes(scenario)) == []
    assert (scenario.expect.culprit, scenario.job.args) == (ranks - 1, ("a",))


def test_out_in_an_argument_is_a_directory_of_the_run(tmp_path):
    out = tmp_path / "out"
    assert arguments_of(("--steps", "{x}"), out) == ("--steps", "{x}")
    assert not out.exists()
    assert arguments_of(("--to={out}/a", "{out}"), out) == (f"--to={out}/a", str(out))
    assert out.is_dir()


def test_the_seed_travels_and_a_hash_seed_of_the_users_own_stays():
    assert seed_variables(7, {}) == {"HANGDRILL_SEED": "7", "PYTHONHASHSEED": "7"}
    assert seed_variables(-1, {})["PYTHONHASHSEED"] == "4294967295"
    assert seed_variables(7, {"PYTHONHASHSEED": "0"}) == {"HANGDRILL_SEED": "7"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [("2.13.0", "2.15.0", "wrapped"), ("2.15.0", "2.13.0+cpu", "wrapped"), ("2.14.1+cu130", "2.15.0a0", "auto")],
)
def test_both_sides_are_counted_alike(tmp_path, old, new, expected):
    stacks = {"baseline": context_of(tmp_path, torch=old).stacks["baseline"]}
    stacks["candidate"] = context_of(tmp_path, torch=new).stacks["candidate"]
    assert placement_of(stacks) == expected
    assert placement_of({name: Stack(name=name, python="p") for name in stacks}) == "auto"


def test_two_failures_one_after_the_other_end_the_pairs():
    bad, good = ran(exit_code=1, said="boom"), ran()
    assert _hopeless("candidate", [good, bad]) == ""
    assert _hopeless("candidate", [bad, good]) == ""
    assert "candidate" in _hopeless("candidate", [good, bad, bad])


def test_torch_is_watched_when_the_script_imports_it_and_not_before(tmp_path, monkeypatch):
    (tmp_path / "late_module.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found: list[int] = []
    after_import("late_module", lambda: found.append(sys.modules["late_module"].VALUE))
    assert found == []
    import late_module  # noqa: F401 - importing it is what is tried

    assert found == [3]
    after_import("late_module", lambda: found.append(0))
    assert found == [3, 0]
    monkeypatch.delitem(sys.modules, "late_module")


def test_a_rank_that_makes_more_groups_than_it_has_room_for_leaves_no_count(tmp_path):
    record = Record.from_environment(tmp_path, {"RANK": "0", "WORLD_SIZE": "1"})
    watch = Watch(record, Counts(tmp_path / "rank_0.ops"), wrapped=False)
    book = SimpleNamespace(groups=[], notes=[], disarm=lambda: None)
    watch._book = book
    watch.save()
    assert read_run(tmp_path, world_size=1)[0][0].measures["collectives"] == 0  # the control
    book.notes.append("group 256 is not counted")
    watch.finish()
    (found,), _ = read_run(tmp_path, world_size=1)
    assert found.failed == {"count": "group 256 is not counted"}
    assert "collectives" not in found.measures


def test_a_torch_that_cannot_be_watched_leaves_no_count_and_the_reason(tmp_path, monkeypatch):
    def broken(self):
        raise AttributeError("no such function")

    record = Record.from_environment(tmp_path, {"RANK": "0", "WORLD_SIZE": "1"})
    watch = Watch(record, Counts(tmp_path / "rank_0.ops"), wrapped=False)
    monkeypatch.setattr(Watch, "_install", broken)
    watch.install()
    watch.finish()
    (found,), _ = read_run(tmp_path, world_size=1)
    assert found.failed == {"count": "AttributeError: no such function"}
    assert "collectives" not in found.measures
    assert found.measures["host_peak_bytes"] > 0
