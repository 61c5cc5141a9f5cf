"""The bwrap launcher with the real bwrap: what its job sees, what outlives it, and what it refuses before it starts."""

import os
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from box_requests import CHECKOUT, box_request, needs_bwrap, prepare_run, volume

from hangdrill.drill.procfs import own_id, pid_inside, read_process
from hangdrill.drill.supervise import Grace, Supervisor
from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.bwrap import BwrapLauncher
from hangdrill.model.errors import MachineError


class ShellLauncher:
    """In place of torchrun: a shell with the text of the request's first argument."""

    def check(self, request):
        pass

    def command(self, request):
        return ("/bin/sh", "-c", *request.args)


def launcher():
    made = BwrapLauncher()
    made._torchrun = ShellLauncher()
    return made


@pytest.fixture
def run_dir(tmp_path):
    return prepare_run(tmp_path)


def start(run_dir, text, **changes):
    request = box_request(run_dir, args=(text,), **changes)
    environ = {**request.environ, "HANGDRILL_RUN_ID": request.run_id}
    request = box_request(run_dir, args=(text,), **{**changes, "environ": environ, "run_id": request.run_id})
    launcher().check(request)
    return launcher().start(request), request.run_id


def run_to_its_end(run_dir, text, **changes):
    job, _ = start(run_dir, text, **changes)
    code = Waiter().until(job.poll, deadline_s=30)
    job.close()
    return code, (run_dir / "job.log").read_text()


def wait_for(run_dir, name):
    assert Waiter().until(lambda: (run_dir / "native" / name).exists() or None, deadline_s=30)


def end(job, run_id):
    """Kill every process, and reap the outer bwrap."""
    report = Supervisor(run_id, own_id()).kill(Grace())
    assert report.survivors == ()
    assert Waiter().until(lambda: job.poll() is not None or None, deadline_s=10)


def test_missing_bwrap_is_the_machines_fault_with_the_next_step(run_dir, tmp_path):
    with pytest.raises(MachineError, match=r"bubblewrap is not installed(.|\n)*apt-get"):
        launcher().check(box_request(run_dir, environ={"PATH": str(tmp_path)}))


@needs_bwrap
def test_volume_that_is_not_there_is_named(run_dir):
    with pytest.raises(MachineError, match=r"/no/such/place(.|\n)*plain name"):
        launcher().check(box_request(run_dir, volumes=(volume("/no/such/place:/mnt"),)))


@needs_bwrap
def test_bwrap_that_may_not_make_namespaces_is_the_machines_fault(run_dir, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    fake.chmod(0o755)
    environ = {**box_request(run_dir).environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with pytest.raises(MachineError, match=r"No permissions to create new namespace(.|\n)*unprivileged_userns_clone"):
        launcher().check(box_request(run_dir, environ=environ))


@needs_bwrap
def test_tmp_and_home_are_private_and_the_environment_is_read_only(run_dir, tmp_path):
    stray = tmp_path / "stray"
    stray.touch()
    home = os.environ.get("HOME", "/")
    text = f"""ls {stray}; touch /tmp/own && echo tmp; touch {home}/.hangdrill-own && echo home
        touch "$(dirname "$0")/x" {run_dir}/agent/x /usr/x && echo writable; ls -A {run_dir}; echo $$"""
    code, log = run_to_its_end(run_dir, text)
    words = log.split()
    assert code == 0
    assert {"tmp", "home"} <= set(words)
    assert "writable" not in words
    assert "evidence" not in words
    assert "No such file" in log
    assert not os.path.lexists(f"{home}/.hangdrill-own")
    assert int(words[-1]) < 20, "pids are the container's own"


@needs_bwrap
def test_run_directory_and_volume_are_seen_on_both_sides(run_dir):
    (run_dir / "volumes/dumps").mkdir(parents=True)
    text = f"echo one > {run_dir}/native/fr_0; echo two > /mnt/dumps/fr_1"
    code, log = run_to_its_end(run_dir, text, volumes=(volume("dumps:/mnt/dumps"),))
    assert (code, log) == (0, "")
    assert (run_dir / "native/fr_0").read_text() == "one\n"
    assert (run_dir / "volumes/dumps/fr_1").read_text() == "two\n"


@needs_bwrap
def test_read_only_volume_cannot_be_written(run_dir, tmp_path):
    (tmp_path / "data").mkdir()
    code, log = run_to_its_end(run_dir, "touch /data/x", volumes=(volume(f"{tmp_path}/data:/data:ro"),))
    assert code != 0
    assert "Read-only" in log


@needs_bwrap
def test_file_in_the_own_layer_is_found_while_it_is_there_and_gone_after_removal(run_dir):
    text = f"echo dump > /tmp/dumps/fr_0; touch {run_dir}/native/ready; exec sleep 60"
    job, run_id = start(run_dir, text, dump_dir="/tmp/dumps")
    try:
        wait_for(run_dir, "ready")
        place = job.locate("/tmp/dumps/fr_0")
        assert place is not None
        assert place.read_text() == "dump\n"
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        job.remove()
        assert Waiter().until(lambda: job.poll() is not None or None, deadline_s=10)
        assert job.locate("/tmp/dumps/fr_0") is None
        assert not place.exists()
        job.remove()
    finally:
        end(job, run_id)


@needs_bwrap
def test_layer_is_readable_until_the_ended_job_is_closed(run_dir):
    job, run_id = start(run_dir, f"echo dump > /tmp/fr_0; touch {run_dir}/native/ready; read x < {run_dir}/native/go")
    try:
        os.mkfifo(run_dir / "native/go")
        wait_for(run_dir, "ready")
        assert job.locate("/tmp/fr_0") is not None
        end(job, run_id)
        place = job.locate("/tmp/fr_0")
        assert place is not None
        assert place.read_text() == "dump\n"
        job.close()
        assert job.locate("/tmp/fr_0") is None
    finally:
        end(job, run_id)


@needs_bwrap
def test_host_file_of_the_same_name_is_never_taken_for_the_jobs(run_dir, tmp_path):
    stray = tmp_path / "fr_0"
    stray.write_text("of another job")
    job, run_id = start(run_dir, f"touch {run_dir}/native/ready; exec sleep 60")
    try:
        wait_for(run_dir, "ready")
        place = job.locate(str(stray))
        assert place is None or not place.exists()
    finally:
        job.remove()
        end(job, run_id)


@needs_bwrap
def test_processes_in_the_container_are_the_supervisors_and_tell_another_pid(run_dir):
    job, run_id = start(run_dir, f"touch {run_dir}/native/ready; exec sleep 60")
    try:
        wait_for(run_dir, "ready")
        found = Supervisor(run_id, own_id()).processes()
        sleeping = next(process for process in found if process.name == "sleep")
        assert pid_inside(sleeping.id.pid) != sleeping.id.pid
        assert pid_inside(os.getpid()) == os.getpid()
    finally:
        end(job, run_id)
    assert read_process(sleeping.id.pid) is None or not read_process(sleeping.id.pid).alive
    assert job.leftovers() == ()


@needs_bwrap
def test_it_needs_no_root(tmp_path):
    """As an ordinary user, with the system's Python: its own uid inside, the run directory writable, /tmp private."""
    if os.getuid() != 0:
        pytest.skip("the other tests show it: they run without root")
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    seen = subprocess.run(["test", "-r", CHECKOUT / "hangdrill/rank/__init__.py"], check=False, **nobody)
    if seen.returncode or not Path("/usr/bin/python3").exists():
        pytest.skip("another user cannot read this checkout, or there is no /usr/bin/python3")
    with tempfile.TemporaryDirectory(prefix="hd-nobody-", dir="/tmp") as name:
        run_dir = prepare_run(Path(name))
        for path in (Path(name), run_dir, *run_dir.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        text = (
            f"id -u; touch /tmp/own && echo tmp; echo dump > {run_dir}/native/fr_0; touch {run_dir}/agent/x; ls {name}"
        )
        environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": f"{run_dir}/agent:{CHECKOUT}"}
        request = box_request(run_dir, args=(text,), python="/usr/bin/python3", environ=environ)
        done = subprocess.run(
            launcher().command(request), env=environ, cwd=run_dir, capture_output=True, text=True, check=False, **nobody
        )
        assert done.stdout.split() == ["65534", "tmp", "run"], done.stderr
        assert (run_dir / "native/fr_0").stat().st_uid == 65534
        assert not (run_dir / "agent/x").exists()
