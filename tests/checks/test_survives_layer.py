"""A dump that is gone with its container: the reason names the layer, and only when the place was in the layer."""

import msgspec
import pytest
from healthy_runs import lose_rank, native_run, scenario

from hangdrill.checks import run_checks
from hangdrill.model.scenario import LauncherName, Teardown, Trigger
from hangdrill.model.verdict import Verdict

REMOVAL = "container-removal"


def removed(dump_dir, **job):
    """A native run whose dumps lay in dump_dir, and were gone after the removal."""
    wanted = scenario(
        job={"launcher": LauncherName.BWRAP, **job},
        expect={"survives": (Teardown.CONTAINER_REMOVAL,)},
        recorder={"trigger": Trigger.NATIVE},
    )
    run = native_run(scenario=wanted)
    before = run.dump_prefix
    run = msgspec.structs.replace(run, dump_prefix=f"{dump_dir}/fr_")
    move = {f"{before}{rank}": f"{dump_dir}/fr_{rank}" for rank in range(wanted.job.world_size)}
    files = [msgspec.structs.replace(facts, path=move.get(facts.path, facts.path)) for facts in run.files]
    collected = [facts for facts in files if facts.when == "collected"]
    after = [
        msgspec.structs.replace(facts, when=REMOVAL, exists=facts.exists and facts.path not in move.values())
        for facts in collected
    ]
    return msgspec.structs.replace(run, files=(*collected, *after))


def answer(run):
    return next(result for result in run_checks(run) if result.name == f"survives-{REMOVAL}")


def test_dump_in_the_own_layer_fails_with_the_place_and_the_mend():
    result = answer(removed("/tmp/dumps"))
    assert result.verdict is Verdict.FAIL
    assert "fr_0 is gone after container-removal: /tmp/dumps is in the container's own layer" in result.detail
    assert "job.volumes" in result.mend


@pytest.mark.parametrize("place", ["/mnt/dumps", "/mnt/dumps/deeper"])
def test_dump_that_is_gone_from_a_volume_is_not_blamed_on_the_layer(place):
    result = answer(removed(place, volumes=("dumps:/mnt/dumps",)))
    assert result.verdict is Verdict.FAIL
    assert "layer" not in result.detail


def test_place_beside_a_volume_is_the_layer():
    assert "own layer" in answer(removed("/mnt/dumps2", volumes=("dumps:/mnt/dumps",))).detail


def test_missing_dump_of_a_read_only_volume_is_explained_by_that():
    run = removed("/mnt/dumps", volumes=("dumps:/mnt/dumps:ro",))
    for rank in range(4):
        run = lose_rank(run, rank)
    result = next(result for result in run_checks(run) if result.name == "every-rank-dumped")
    assert result.verdict is Verdict.FAIL
    assert "/mnt/dumps is on a volume that is mounted read-only" in result.detail
    writable = msgspec.structs.replace(run.scenario.job, volumes=("dumps:/mnt/dumps",))
    run = msgspec.structs.replace(run, scenario=msgspec.structs.replace(run.scenario, job=writable))
    assert "read-only" not in next(result for result in run_checks(run) if result.name == "every-rank-dumped").detail
