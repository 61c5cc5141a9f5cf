"""The container launcher with an image of the user's: what its job sees, what it does not, and what it refuses."""

import os
import sys

import pytest
from box_requests import box_request, prepare_run, volume
from image_labs import made_image, mounts_of_this_host

from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.container import ContainerLauncher
from hangdrill.launchers.engine import Engine
from hangdrill.launchers.image import GpusRefused, ImageTask
from hangdrill.launchers.image import _environ as variables_of
from hangdrill.launchers.image import _explained as explained
from hangdrill.model.errors import MachineError


class ShellLauncher:
    """In place of torchrun: a shell with the text of the request's first argument."""

    def command(self, request):
        return ("/bin/sh", "-c", *request.args)


@pytest.fixture
def run_dir(tmp_path):
    return prepare_run(tmp_path)


@pytest.fixture
def image(engine, tmp_path):
    with made_image(engine, tmp_path) as name:
        yield name


@pytest.fixture
def request_of(engine, run_dir, tmp_path, image):
    """A request for a job in the test image; python: this host's, which is mounted."""

    def of(**changes):
        given = {
            "environ": {**os.environ, **engine, "HD_OF_HOST": "yes", "HANGDRILL_RUN_ID": "hd-image-1"},
            "set_environ": {"HANGDRILL_RUN_ID": "hd-image-1", "HD_SET": "yes", "PYTHONPATH": f"{run_dir}/agent"},
            "run_id": "hd-image-1",
            "image": image,
            "volumes": tuple(map(volume, mounts_of_this_host(tmp_path))),
        }
        return box_request(run_dir, **{**given, **changes})

    return of


@pytest.fixture
def start(request_of, engine):
    """Starts a shell's text in the image; the container is removed after the test, and the image is not."""
    started = []

    def start_one(text, **changes):
        launcher = ContainerLauncher()
        launcher._torchrun = ShellLauncher()
        job = launcher.start(request_of(args=(text,), **changes))
        started.append(job)
        return job

    yield start_one
    for job in started:
        job.remove()
        assert job.leftovers() == ()


def ended(job):
    assert Waiter().until(lambda: job.poll() is not None or None, deadline_s=60), "the container did not end"
    return job.poll()


def test_a_job_has_the_images_variables_and_what_hangdrill_sets_and_none_of_this_host(start, run_dir):
    job = start("env; exit 7")
    assert ended(job) == 7
    found = dict(line.split("=", 1) for line in (run_dir / "job.log").read_text().splitlines() if "=" in line)
    assert (found["HD_OF_IMAGE"], found["HD_SET"], found["PATH"]) == ("yes", "yes", "/usr/bin:/bin")
    assert "HD_OF_HOST" not in found
    assert "DOCKER_HOST" not in found
    assert found["PYTHONPATH"] == f"{run_dir}/agent"


def test_a_job_sees_its_run_directory_the_agent_and_the_scripts_directory_alone(start, run_dir, tmp_path):
    work = tmp_path / "work"
    (tmp_path / "elsewhere").mkdir()
    work.mkdir()
    (work / "train.py").touch()
    text = f"""ls {work}/train.py {run_dir}/agent/hangdrill/rank/agent.py; pwd; id -u
        ls {tmp_path}/elsewhere; touch {work}/x {run_dir}/evidence/x; echo fr > {run_dir}/native/fr_0"""
    job = start(text, target=str(work / "train.py"), cwd=str(work))
    ended(job)
    log = (run_dir / "job.log").read_text().splitlines()
    assert {str(work / "train.py"), str(work), f"{run_dir}/agent/hangdrill/rank/agent.py", str(os.getuid())} <= set(log)
    assert any("elsewhere" in line and "No such file" in line for line in log)
    assert not (work / "x").exists()
    assert not (run_dir / "evidence/x").exists()
    assert (run_dir / "native/fr_0").read_text() == "fr\n"


def test_dumps_in_the_images_own_layer_go_with_the_container(start):
    job = start("ls -ld /dumps; echo dump > /dumps/fr_0", dump_dir="/dumps")
    assert ended(job) == 0
    job.close()
    place = job.locate("/dumps/fr_0")
    assert place is not None
    assert place.read_text() == "dump\n"
    job.remove()
    assert not place.exists()


def test_the_image_stays_and_the_container_goes(start, engine, image):
    job = start("exit 0")
    ended(job)
    assert [one.name for one in job.leftovers()] == ["hangdrill-hd-image-1"]
    job.remove()
    assert job.leftovers() == ()
    assert Engine(engine).image(image) is not None


def test_the_check_passes_for_an_image_that_has_torch(request_of, engine):
    ContainerLauncher().check(request_of())
    assert Engine(engine).runs() == []


def test_a_python_that_greets_and_says_good_bye_passes_the_check(request_of, engine, tmp_path):
    loud = tmp_path / "loud"
    loud.write_text(f'#!/bin/sh\necho "{{noise"; "{sys.executable}" "$@"; echo "[bye"; echo "true"\n')
    loud.chmod(0o755)
    ContainerLauncher().check(request_of(python=str(loud), target=str(loud)))
    assert Engine(engine).runs() == []


def refused(request, engine):
    with pytest.raises(MachineError) as caught:
        ContainerLauncher().check(request)
    assert Engine(engine).runs() == [], "the trial's container is gone"
    return str(caught.value)


def test_an_image_that_is_not_there_is_the_machines_fault_and_is_not_pulled(request_of, engine):
    text = refused(request_of(image="registry.invalid/none:1"), engine)
    assert "no image registry.invalid/none:1" in text
    assert "docker pull registry.invalid/none:1" in text


def test_a_python_that_is_not_in_the_image_is_named(request_of, engine):
    text = refused(request_of(python="python9.99"), engine)
    assert "python9.99 in hangdrill-test/train:2.15" in text
    assert "not found" in text


def test_an_image_without_torch_is_named(request_of, engine, tmp_path):
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    text = refused(request_of(python=str(bare), target=str(bare)), engine)
    assert "has no torch" in text


def test_an_image_without_a_shell_is_named(request_of, engine, tmp_path):
    with made_image(engine, tmp_path, "hangdrill-test/empty:1", archive=bytes(1024)) as name:
        text = refused(request_of(image=name, volumes=()), engine)
    assert "no /bin/sh" in text


def test_who_is_no_user_of_the_image_gets_a_home_and_a_name(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert variables_of({}, {}) == {"HOME": "/tmp", "USER": "hangdrill", "LOGNAME": "hangdrill"}
    assert "HOME" not in variables_of({"HOME": "/home/train"}, {})
    assert variables_of({}, {"HOME": "/work"})["HOME"] == "/work"
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert variables_of({}, {}) == {}


def test_an_images_own_packages_stay_behind_the_rank_agent():
    found = variables_of({"PYTHONPATH": "/opt/train"}, {"PYTHONPATH": "/run/agent"})
    assert found["PYTHONPATH"] == "/run/agent:/opt/train"
    assert "PYTHONPATH" not in variables_of({"PYTHONPATH": "/opt/train"}, {})


def test_an_engine_that_has_no_gpus_to_give_is_said_with_the_next_step():
    refusal = MachineError("the container engine refuses: could not select device driver with capabilities: [[gpu]]")
    found = explained(refusal, ImageTask(image="train:1", run_id="r", controller="", command=()))
    assert isinstance(found, GpusRefused)
    assert "NVIDIA Container Toolkit" in str(found)
