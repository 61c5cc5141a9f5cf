"""What a plan decides for a job in a container: where this host keeps its dumps, and what the collector is told."""

import os
import sys
from pathlib import Path

import pytest
from fake_job import scenario

from hangdrill.drill.plan import missing_launcher, plan_drill
from hangdrill.drill.plan_values import dump_place


def plan_of(tmp_path, recorder=None, **job):
    return plan_drill(
        scenario(job={"launcher": "bwrap", **job}, recorder=recorder or {}),
        name="a",
        run_dir=tmp_path / "run",
        python=sys.executable,
        environ={"PATH": os.environ["PATH"]},
        run_id="hd-1",
    )


def option(plan, name):
    command = plan.collector_command
    return command[command.index(name) + 1] if name in command else None


def test_default_dumps_are_in_the_mounted_run_directory(tmp_path):
    plan = plan_of(tmp_path)
    assert dump_place(plan, plan.dump_prefix) == tmp_path / "run/native/fr_"
    assert option(plan, "--native-prefix") == str(tmp_path / "run/native/fr_")
    assert "--contained" in plan.collector_command


def test_dumps_on_a_volume_are_looked_for_at_its_source(tmp_path):
    plan = plan_of(tmp_path, {"dump_to": "/mnt/dumps/a"}, volumes=["dumps:/mnt/dumps"])
    assert plan.dump_prefix == "/mnt/dumps/a/fr_"
    assert dump_place(plan, plan.dump_prefix) == tmp_path / "run/volumes/dumps/a/fr_"
    assert option(plan, "--native-prefix") == str(tmp_path / "run/volumes/dumps/a/fr_")


def test_dumps_in_the_own_layer_have_no_place_on_this_host(tmp_path):
    plan = plan_of(tmp_path, {"dump_to": "/tmp/dumps"})
    assert dump_place(plan, plan.dump_prefix) is None
    assert option(plan, "--native-prefix") is None


def test_torchrun_sees_this_hosts_files(tmp_path):
    plan = plan_of(tmp_path, {"dump_to": "/tmp/dumps"}, launcher="torchrun")
    assert dump_place(plan, plan.dump_prefix) == Path("/tmp/dumps/fr_")
    assert "--contained" not in plan.collector_command


LACKING = [("bwrap", "bubblewrap"), ("container", "engine"), ("kubernetes", "podman"), ("torchrun", "")]


@pytest.mark.parametrize(("launcher", "word"), LACKING)
def test_what_a_launcher_lacks_is_said_before_anything_starts(launcher, word, tmp_path):
    environ = {"PATH": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none"}
    why = missing_launcher(scenario(job={"launcher": launcher}), environ)
    assert word in why
    assert bool(word) == bool(why)
