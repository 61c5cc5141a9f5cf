"""A dump in a place that goes with the job fails with the place's name; one that nobody could look at is unknown."""

import msgspec
import pytest
from healthy_runs import native_run, scenario

from hangdrill.checks import run_checks
from hangdrill.model.scenario import LauncherName, Teardown, Trigger
from hangdrill.model.verdict import Verdict

WIPE = "node-tmp-wipe"
PRIVATE = "the job's private /tmp, which Slurm's job_container/tmpfs deletes with the job"


def looked_at_again(**after):
    """A native run; after the wipe every file is as `after` says."""
    wanted = scenario(
        job={"launcher": LauncherName.SLURM},
        expect={"survives": (Teardown.NODE_TMP_WIPE,)},
        recorder={"trigger": Trigger.NATIVE},
    )
    run = native_run(scenario=wanted)
    collected = [facts for facts in run.files if facts.when == "collected"]
    again = [msgspec.structs.replace(facts, when=WIPE, **after) for facts in collected]
    return msgspec.structs.replace(run, files=(*collected, *again))


def answer(run):
    return next(result for result in run_checks(run) if result.name == f"survives-{WIPE}")


def test_dump_that_is_still_there_passes():
    assert answer(looked_at_again()).verdict is Verdict.PASS


def test_dump_in_the_jobs_private_tmp_fails_with_the_place_and_the_mend():
    result = answer(looked_at_again(exists=False, place=PRIVATE))
    assert result.verdict is Verdict.FAIL
    assert "fr_0 is gone after node-tmp-wipe: " in result.detail
    assert f"is in {PRIVATE}" in result.detail
    assert "all nodes share" in result.mend


@pytest.mark.parametrize("exists", [True, False])
def test_dump_that_nobody_could_look_at_is_unknown_whatever_else_is_said(exists):
    result = answer(looked_at_again(exists=exists, unseen="no job can look at the nodes", place=PRIVATE))
    assert result.verdict is Verdict.UNKNOWN
    assert "fr_0 is out of reach after node-tmp-wipe: no job can look at the nodes" in result.detail
