"""The look-ups start from the expected ranks and keep the attempts of a restarted job apart."""

import pytest
from healthy_runs import (
    EVIDENCE,
    PREFIX,
    PULLED_NS,
    artifact,
    dump,
    held_run,
    mutate,
    mutate_each,
    native_run,
    restarted_run,
    scenario,
)

from hangdrill.checks.evidence import (
    artifact_of,
    best_dump,
    dumps_of,
    expected_ranks,
    hang_artifacts,
    is_inside,
    judged_agents,
    judged_attempt,
    judged_dumps,
    judged_reports,
)
from hangdrill.checks.words import count_text, list_text, ranks_text, size_text
from hangdrill.model.run import JournalEvent, PullReason, RankExit


@pytest.mark.parametrize(
    ("dumps", "ranks"), [("all", (0, 1, 2, 3)), ("none", ()), ((3, 0, 2, 2, 9), (0, 2, 3)), ((), ())]
)
def test_expected_ranks_come_from_the_scenario_and_stay_in_the_world(dumps, ranks):
    assert expected_ranks(held_run(scenario=scenario(expect={"dumps": dumps}), dumps={}, artifacts=())) == ranks


def test_first_attempt_in_which_the_fault_took_is_judged():
    run = restarted_run()
    assert judged_attempt(run) == 0
    assert judged_attempt(mutate(run, faults=(mutate(run.faults[0], attempt=1),))) == 1
    assert judged_attempt(mutate(run, faults=())) == 0
    assert {facts.attempt for facts in judged_agents(run).values()} == {0}


def test_dump_of_another_attempt_is_not_judged():
    run = restarted_run()
    later = mutate(dump(0, 4), path="/runs/quick/ddp-hold/evidence/rank_0.a1.dump")
    run = mutate(run, dumps={**run.dumps, 0: (later, *run.dumps[0])})
    assert dumps_of(run, 0) == run.dumps[0][1:]


def test_native_file_belongs_to_the_artifact_of_its_copy():
    run = native_run()
    assert artifact_of(run, run.dumps[2][0]) == mutate(artifact(2), road="native", path="native_fr_2")
    assert artifact_of(run, mutate(run.dumps[2][0], path=f"{PREFIX}9")) is None


def test_best_dump_is_the_full_unbroken_one():
    full, cut, active = dump(0, 3), mutate(dump(0, 4), salvaged=True), mutate(dump(0, 4), only_active=True)
    run = mutate(held_run(), dumps={0: (active, cut, full)})
    assert best_dump(run, 0) == full
    assert best_dump(run, 1) is None


@pytest.mark.parametrize(
    ("path", "inside"), [("/a/b/c", True), ("/a/bc", False), ("/a/b", False), ("/a/b/../c", False)]
)
def test_path_is_inside_only_below_the_directory(path, inside):
    assert is_inside(path, "/a/b") is inside


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), "no rank"),
        ((0,), "rank 0"),
        ((3, 0, 2), "ranks 0, 2, 3"),
        (tuple(range(7)) + tuple(range(8, 1024)), "ranks 0-6, 8-1023"),
        ((*range(9), 11, 13), "ranks 0-8, 11, 13"),
    ],
)
def test_ranks_are_said_briefly(ranks, text):
    assert ranks_text(ranks) == text


def test_lists_counts_and_sizes_are_said_briefly():
    assert list_text(["a", "b", "c"], most=2) == "a, b and 1 more"
    assert (count_text(1, "dump"), count_text(0, "dump")) == ("1 dump", "0 dumps")
    assert (size_text(812), size_text(32_000), size_text(4 << 20)) == ("812 bytes", "31.2 KiB", "4.0 MiB")


def test_what_came_after_the_inspection_is_not_judged():
    inspected = JournalEvent(name="inspected", elapsed_s=9.1, time_ns=PULLED_NS + 1, detail={"when": "collected"})
    late = mutate(artifact(0), path="late.dump", pulled_ns=PULLED_NS + 2)
    run = mutate(held_run(), journal=(inspected, *held_run().journal), artifacts=(*held_run().artifacts, late))
    assert hang_artifacts(run, 0) == (artifact(0),)


def test_dump_taken_at_an_orderly_exit_is_not_the_dump_of_the_hang():
    after = mutate(artifact(0), path="exit.dump", reason=PullReason.EXIT)
    longer = mutate(dump(0, 9), path=f"{EVIDENCE}/exit.dump")
    run = mutate(held_run(), artifacts=(*held_run().artifacts, after))
    run = mutate(run, dumps={**run.dumps, 0: (longer, *run.dumps[0])})
    assert best_dump(run, 0) == held_run().dumps[0][0]


def test_diagnosis_gets_nothing_that_a_released_rank_left_in_the_teardown():
    inspected = JournalEvent(name="inspected", elapsed_s=9.1, time_ns=PULLED_NS + 1, detail={"when": "collected"})
    base = mutate(held_run(), journal=(inspected,))
    late = mutate(artifact(1), path="late.dump", pulled_ns=PULLED_NS + 2, reason=PullReason.EXCEPTION)
    after = mutate(dump(1, 4), path=f"{EVIDENCE}/late.dump")
    ended = RankExit(rank=1, status="exception", in_distributed=True, last_sequence=4, time_ns=PULLED_NS + 2)
    reports = mutate_each(base.manifest.ranks, lambda pull: mutate(pull, exit=ended), rank=1)
    run = mutate(
        base,
        artifacts=(*base.artifacts, late),
        dumps={**base.dumps, 1: (after, *base.dumps[1])},
        manifest=mutate(base.manifest, ranks=reports),
    )
    assert judged_dumps(run) == judged_dumps(base)
    assert judged_reports(run) == base.manifest.ranks


def test_exit_before_the_inspection_is_evidence():
    ended = RankExit(rank=1, status="exit", time_ns=PULLED_NS)
    base = held_run()
    reports = mutate_each(base.manifest.ranks, lambda pull: mutate(pull, exit=ended), rank=1)
    assert judged_reports(mutate(base, manifest=mutate(base.manifest, ranks=reports))) == reports
    assert judged_reports(mutate(base, manifest=None)) == ()


@pytest.mark.parametrize(("is_noticed", "counts"), [(True, True), (False, False)])
def test_dump_at_an_orderly_exit_is_a_dump_of_the_hang_only_if_one_was_noticed(is_noticed, counts):
    base = held_run()
    taken = mutate(artifact(1), reason=PullReason.EXIT)
    others = tuple(item for item in base.artifacts if item.rank != 1)
    manifest = mutate(base.manifest, noticed_ns=base.manifest.noticed_ns if is_noticed else None)
    run = mutate(base, manifest=manifest, artifacts=(*others, taken))
    assert hang_artifacts(run, 1) == ((taken,) if counts else ())
