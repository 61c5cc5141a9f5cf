"""Where a job runs: in an image it sees what it is given and no more, and it ends as it would on this host."""

import os
import sys
from pathlib import Path

import msgspec
import pytest
from certify_contexts import left_over
from image_labs import made_image, mounts_of_this_host

from hangdrill.certify.checkpoint_jobs import Job, run_job
from hangdrill.certify.places import HERE, Place, scenario_in
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.launchers.engine import Engine
from hangdrill.model.errors import MachineError
from hangdrill.model.scenario import Job as DrillJob
from hangdrill.model.scenario import LauncherName, Scenario


@pytest.fixture
def place(docker_engine, tmp_path):
    with made_image(docker_engine, tmp_path) as name:
        image = Engine(docker_engine).image(name).id
        mounts = mounts_of_this_host(tmp_path)
        yield Place(image=image, python=sys.executable, mounts=mounts, engine=docker_engine)
        assert Engine(docker_engine).runs() == []


@pytest.fixture
def run(place, tmp_path):
    """Runs a shell's text in the image; how it ended, and its log."""

    def run_one(text, *, mounts=(), **changes):
        (tmp_path / "work").mkdir(exist_ok=True)
        agent = tmp_path / "agent"
        agent.mkdir(exist_ok=True)
        given = {
            "command": ("/bin/sh", "-c", text),
            "python": sys.executable,
            "environ": {"HD_OF_STACK": "1"},
            "agent_path": agent,
            "cwd": tmp_path / "elsewhere",
            "log": tmp_path / "work/job.log",
            "deadline_s": 60.0,
            "place": msgspec.structs.replace(place, mounts=(*place.mounts, *mounts)),
        }
        end = run_job(Job(**{**given, **changes}), Interrupt())
        return end, (tmp_path / "work/job.log").read_text()

    return run_one


def test_a_job_in_an_image_sees_and_writes_what_it_is_given_alone(run, tmp_path):
    seen, written, hidden = (tmp_path / name for name in ("seen", "written", "hidden"))
    for path in (seen, written, hidden):
        path.mkdir()
        (path / "a").write_text(path.name)
    text = f"cat {seen}/a {written}/a {hidden}/a; touch {seen}/b {written}/b {tmp_path}/work/b; pwd; env"
    end, log = run(text, sees=(seen,), writes=(written,))
    assert end.exit_code == 0
    assert "seenwritten" in log
    assert "hidden/a: No such file" in log
    assert (written / "b").exists()
    assert (tmp_path / "work/b").exists()
    assert not (seen / "b").exists()
    assert f"\n{tmp_path}/work\n" in log, "where it would stand is not mounted: then beside the log"
    assert {"HD_OF_STACK=1", "HD_OF_IMAGE=yes", "PATH=/usr/bin:/bin"} <= set(log.splitlines())


def test_a_job_in_an_image_stands_where_the_user_stands_once_that_is_mounted(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    _, log = run("pwd", mounts=(f"{tmp_path}/elsewhere:{tmp_path}/elsewhere:ro",))
    assert log.splitlines() == [str(tmp_path / "elsewhere")]


def test_a_stack_that_names_a_path_has_it_in_the_place_of_the_images(run):
    _, log = run("/usr/bin/env", environ={"PATH": "/of/the/stack"})
    assert "PATH=/of/the/stack" in {line.replace(f"{Path(sys.executable).parent}:", "") for line in log.splitlines()}


@pytest.mark.parametrize(("text", "code"), [("exit 3", 3), ("sh -c 'kill -KILL $$'; exit $?", -9)])
def test_a_job_in_an_image_ends_with_its_own_exit_code(run, text, code):
    assert run(text)[0].exit_code == code


def test_a_job_in_an_image_that_never_ends_is_ended(run):
    end, _ = run("sleep 600 & sleep 600", deadline_s=1.0)
    assert end.exit_code is None


def test_what_an_engine_started_that_falls_silent_at_once_is_ended(run, place, tmp_path, monkeypatch):
    """As one that is killed right after the start: it answers nothing, and removes nothing."""
    with monkeypatch.context() as broken:

        def silent(self, *_):
            Waiter().until(lambda: (tmp_path / "work/here").exists() or None, deadline_s=60)
            raise MachineError("no container engine listens there")

        broken.setattr(Engine, "state", silent)
        broken.setattr(Engine, "remove", silent)
        with pytest.raises(MachineError, match="no container engine listens there"):
            run(f"touch {tmp_path}/work/here; sleep 600; true")
    assert (tmp_path / "work/here").exists(), "it ran: else this test shows nothing"
    assert left_over(tmp_path) == []
    for name, _, _ in Engine(place.engine).runs():
        Engine(place.engine).remove(name)


def test_an_engine_that_falls_silent_in_the_middle_leaves_no_process_and_no_file_of_torchrun(
    run, place, tmp_path, monkeypatch
):
    with monkeypatch.context() as broken:
        first = Engine.state
        asked = []

        def silent(self, container):
            asked.append(container)
            if len(asked) == 1:
                return first(self, container)
            raise MachineError("no container engine listens there")

        broken.setattr(Engine, "state", silent)
        with pytest.raises(MachineError, match="no container engine listens there"):
            run(f"mkdir {tmp_path}/work/job.log.torchrun; echo {tmp_path}")
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["job.log"]
    assert left_over(tmp_path) == []
    for name, _, _ in Engine(place.engine).runs():
        Engine(place.engine).remove(name)


def test_a_mount_that_is_not_there_is_said_before_anything_is_started(run, tmp_path):
    with pytest.raises(MachineError, match="does not exist"):
        run("true", mounts=(f"{tmp_path}/none:/none",))


def test_a_drill_moves_into_the_image_with_its_mounts_and_the_variables_of_plan_and_stack():
    scenario = Scenario(title="t", job=DrillJob(env={"A": "scenario"}, volumes=()))
    place = Place(image="sha256:1", python="/opt/python", mounts=("/data:/data:ro",))
    job = scenario_in(place, scenario, {"A": "stack", "B": "stack"}).job
    assert (job.launcher, job.image, job.container.python) == (LauncherName.CONTAINER, "sha256:1", "/opt/python")
    assert (job.volumes, job.env) == (("/data:/data:ro",), {"A": "scenario", "B": "stack"})
    assert scenario_in(HERE, scenario, dict(os.environ)) == scenario
