"""The container launcher with real engines: what its job sees, what outlives it, and what it refuses."""

import io
import os
import stat
import sys
import tarfile

import pytest
from box_requests import box_request, prepare_run, volume

from hangdrill.drill.clean import clean
from hangdrill.drill.procfs import own_id
from hangdrill.drill.supervise import Grace, Supervisor
from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.box import box_of
from hangdrill.launchers.container import ContainerLauncher, root_archive
from hangdrill.launchers.engine import Engine, controller_of, labels_of
from hangdrill.model.errors import MachineError


class ShellLauncher:
    """In place of torchrun: a shell with the text of the request's first argument."""

    def check(self, request):
        pass

    def command(self, request):
        return ("/bin/sh", "-c", *request.args)


def launcher():
    made = ContainerLauncher()
    made._torchrun = ShellLauncher()
    return made


@pytest.fixture
def run_dir(tmp_path):
    return prepare_run(tmp_path)


@pytest.fixture
def start(run_dir, engine):
    """Starts a shell's text in a container, which is removed after the test."""
    started = []

    def start_one(text, marks=None, **changes):
        request = box_request(run_dir, args=(text,), **changes)
        environ = {**request.environ, **engine, "HANGDRILL_RUN_ID": request.run_id, **(marks or {})}
        request = box_request(run_dir, args=(text,), **{**changes, "environ": environ, "run_id": request.run_id})
        launcher().check(request)
        job = launcher().start(request)
        started.append(job)
        return job, request.run_id

    yield start_one
    for job in started:
        job.remove()
        assert job.leftovers() == ()


def ended(job):
    assert Waiter().until(lambda: job.poll() is not None or None, deadline_s=60), "the container did not end"
    return job.poll()


def wait_for(run_dir, name):
    assert Waiter().until(lambda: (run_dir / "native" / name).exists() or None, deadline_s=60)


def test_no_engine_is_the_machines_fault_with_the_next_step(run_dir, tmp_path):
    pytest.importorskip("docker", reason="docker-py is not installed")
    environ = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    with pytest.raises(MachineError, match=r"no container engine listens there(.|\n)*DOCKER_HOST"):
        launcher().check(box_request(run_dir, environ=environ))
    assert not Engine(environ).answers()


def test_missing_docker_py_names_the_extra(run_dir, monkeypatch):
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(MachineError, match=r"docker-py is not installed(.|\n)*hangdrill\[docker\]"):
        launcher().check(box_request(run_dir))


def test_root_directory_is_small_and_holds_links_and_own_directories_only(run_dir):
    archive = root_archive(box_of(box_request(run_dir, dump_dir="/dumps")))
    assert len(archive) < 200_000
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        entries = {entry.name: entry for entry in tar.getmembers()}
    assert not any(entry.isfile() for entry in entries.values())
    assert (entries["tmp"].mode, entries["dumps"].mode) == (0o1777, 0o700)
    assert entries["dumps"].uid == os.getuid()


def test_job_sees_its_environment_and_nobody_elses_files(start, run_dir, tmp_path):
    (tmp_path / "stray").touch()
    (run_dir / "volumes/dumps").mkdir(parents=True)
    text = f"""ls {tmp_path}/stray; touch /tmp/own && echo tmp; touch "$HOME/own" && echo home
        touch {run_dir}/agent/x /usr/x && echo writable; ls -A {run_dir}; echo two > /mnt/dumps/fr_1; exit 7"""
    job, _ = start(text, volumes=(volume("dumps:/mnt/dumps"),))
    assert ended(job) == 7
    log = (run_dir / "job.log").read_text()
    assert {"tmp", "home"} <= set(log.split())
    assert "No such file" in log
    assert not {"writable", "evidence"} & set(log.split())
    assert (run_dir / "volumes/dumps/fr_1").read_text() == "two\n"


def test_layer_outlives_the_job_and_goes_with_the_container(start, run_dir):
    job, _ = start("echo dump > /tmp/dumps/fr_0", dump_dir="/tmp/dumps")
    assert ended(job) == 0
    job.close()
    place = job.locate("/tmp/dumps/fr_0")
    assert place is not None
    assert place.read_text() == "dump\n"
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert len(job.leftovers()) == 2, "the container and its image"
    job.remove()
    assert not place.exists()
    assert job.leftovers() == ()
    job.remove()


def test_removal_kills_what_still_runs(start, run_dir):
    job, run_id = start(f"touch {run_dir}/native/ready; exec sleep 60")
    wait_for(run_dir, "ready")
    assert [process.name for process in Supervisor(run_id, own_id()).processes()] == ["sleep"]
    job.remove()
    assert ended(job) == -9
    assert Supervisor(run_id, own_id()).processes() == ()


def test_killed_container_says_the_signal(start, run_dir):
    job, run_id = start(f"touch {run_dir}/native/ready; exec sleep 60")
    wait_for(run_dir, "ready")
    assert Supervisor(run_id, own_id()).kill(Grace()).survivors == ()
    assert ended(job) == -9


def test_clean_removes_the_container_of_a_dead_controller_and_no_other(start, run_dir, engine, tmp_path):
    environ = {**os.environ, **engine, "HANGDRILL_RUNTIME_DIR": str(tmp_path / "runtime")}
    mine = "{}:{}".format(*own_id())
    dead, dead_id = start("exit 0", marks={"HANGDRILL_CONTROLLER": "4194303:1"})
    alive, alive_id = start("exit 0", marks={"HANGDRILL_CONTROLLER": mine})
    ended(dead)
    ended(alive)
    found = {leftover.name for leftover in clean(dry_run=True, environ=environ)}
    assert f"hangdrill-{dead_id}" in found
    assert f"hangdrill-{alive_id}" not in found
    assert len(dead.leftovers()) == 2
    clean(dry_run=False, environ=environ)
    assert dead.leftovers() == ()
    assert len(alive.leftovers()) == 2


def test_whether_another_users_or_hosts_controller_lives_is_not_known():
    mine = labels_of("hd-1", "4711:99")
    assert controller_of(mine) == "4711:99"
    user, _, rest = mine["hangdrill.owner"].partition("@")
    for owner in (f"{int(user) + 1}@{rest}", f"{user}@other-{rest}", mine["hangdrill.owner"] + "1", None):
        theirs = {key: value for key, value in {**mine, "hangdrill.owner": owner}.items() if value is not None}
        assert controller_of(theirs) == ""
