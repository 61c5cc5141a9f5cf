"""What a dead controller left is found and ended; what a living one owns is left alone; a lock names its holder."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "children"))

from hostile_tools import is_over, start, wait_ready, wait_stopped

from hangdrill.drill.clean import clean
from hangdrill.drill.layout import RunLayout, create_run_dir, write_json
from hangdrill.drill.lock import held_resources, holder_of, holding
from hangdrill.drill.plan import new_run_id
from hangdrill.drill.procfs import ProcessId, own_id
from hangdrill.drill.registry import Registration, open_runtime_dir, register, registrations, runtime_root
from hangdrill.drill.supervise import Grace, Supervisor
from hangdrill.drill.waiting import Interrupt, Waiter
from hangdrill.launchers.image import STREAMS
from hangdrill.model.errors import Interrupted, MachineError

DEAD = ProcessId(os.getpid(), own_id().started_ticks - 1)
"""Our pid with another start: a controller that is gone, and older than everything that these tests start."""


@pytest.fixture
def environ(tmp_path):
    return {"HANGDRILL_RUNTIME_DIR": str(tmp_path / "runtime")}


@pytest.fixture
def run_id():
    run_id = new_run_id()
    yield run_id
    Supervisor(run_id, own_id()).kill(Grace())


def entry(tmp_path, environ, run_id, controller):
    """A registered drill with a hold file and a FIFO."""
    layout = create_run_dir(tmp_path / "run")
    write_json(layout.plan, {"run_id": run_id})
    (layout.control / "hold_1").touch()
    os.mkfifo(layout.control / "gil_0")
    register(
        open_runtime_dir(environ),
        Registration(run_id=run_id, name="n", controller=controller, run_dir=str(layout.root)),
    )
    return layout


def own_findings(found, pid, layout):
    """Other drills may have left something on this host too: only ours is looked at."""
    return [item.what for item in found if f"({pid})" in item.name or str(layout.root) in item.name]


def test_drill_of_a_dead_controller_is_ended_and_removed(tmp_path, environ, run_id):
    layout = entry(tmp_path, environ, run_id, DEAD)
    child = start("stopped", run_id, tmp_path, controller=DEAD)
    pid = wait_ready("stopped", tmp_path)
    wait_stopped(pid)
    would = clean(dry_run=True, environ=environ)
    assert own_findings(would, pid, layout) == ["process", "file", "file"]
    assert child.poll() is None, "a dry run ends nothing"
    assert own_findings(clean(dry_run=False, environ=environ), pid, layout) == ["process", "file", "file"]
    child.wait()
    assert list(layout.control.iterdir()) == []
    assert registrations(runtime_root(environ)) == ()
    assert own_findings(clean(dry_run=False, environ=environ), pid, layout) == []


def test_drill_of_a_living_controller_is_left_alone(tmp_path, environ, run_id):
    layout = entry(tmp_path, environ, run_id, own_id())
    child = start("polite", run_id, tmp_path)
    pid = wait_ready("polite", tmp_path)
    assert own_findings(clean(dry_run=False, environ=environ), pid, layout) == []
    assert child.poll() is None
    assert (layout.control / "hold_1").exists()
    assert len(registrations(runtime_root(environ))) == 1
    Supervisor(run_id, own_id()).kill(Grace())
    child.wait()


def test_orphan_is_found_without_a_registration_by_its_dead_controller(tmp_path, environ, run_id):
    child = start("daemon", run_id, tmp_path, controller=DEAD)
    child.wait()
    pid = wait_ready("daemon", tmp_path)
    clean(dry_run=False, environ=environ)
    assert is_over(pid)


def test_process_that_cannot_be_proven_to_be_orphaned_is_left_alone(tmp_path, environ, run_id):
    """A run id of nobody we know, whose controller lives: a drill registered elsewhere."""
    child = start("polite", run_id, tmp_path, controller=own_id())
    pid = wait_ready("polite", tmp_path)
    clean(dry_run=False, environ=environ)
    assert not is_over(pid)
    Supervisor(run_id, own_id()).kill(Grace())
    child.wait()


def test_files_are_removed_only_from_what_is_still_a_run_directory(tmp_path, environ, run_id):
    layout = entry(tmp_path, environ, run_id, DEAD)
    layout.plan.unlink()
    clean(dry_run=False, environ=environ)
    assert (layout.control / "hold_1").exists()


def held_by_another_process(root, environ):
    """A process that holds gpu-0 until its input ends."""
    code = (
        "import sys; from pathlib import Path\n"
        "from hangdrill.drill.lock import holding; from hangdrill.drill.waiting import Waiter\n"
        "root = Path(sys.argv[1])\n"
        "with holding(root, ('gpu-0',), run_id='hd-a', name='theirs', waiter=Waiter(), deadline_s=5, note=print):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_lock_of_another_process_is_waited_for_and_named(tmp_path, environ):
    root = open_runtime_dir(environ)
    with held_by_another_process(root, environ) as process:
        notes = []
        own = holding(root, ("gpu-0",), run_id="hd-b", name="ours", waiter=Waiter(), deadline_s=0.2, note=notes.append)
        with pytest.raises(MachineError, match=f"drill theirs \\(process {process.pid}, run hd-a\\)"), own:
            pass
        assert len(notes) == 1
        assert held_resources(root) == ("gpu-0",)
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            stream.close()
    assert held_resources(root) == (), "the kernel drops the lock of a dead process"
    assert [item.what for item in clean(dry_run=False, environ=environ) if str(root) in item.name] == ["lock"]
    assert holder_of(root, "gpu-0") is None


def test_lock_is_free_again_and_names_nobody_afterwards(tmp_path, environ):
    root = open_runtime_dir(environ)
    with holding(root, ("a", "b"), run_id="hd-b", name="ours", waiter=Waiter(), deadline_s=1, note=print):
        assert held_resources(root) == ("a", "b")
        holder = holder_of(root, "a")
        assert holder is not None
        assert holder.pid == os.getpid()
    assert held_resources(root) == ()
    assert holder_of(root, "a") is None


def test_wait_for_a_lock_can_be_interrupted(tmp_path, environ):
    root = open_runtime_dir(environ)
    with holding(root, ("a",), run_id="1", name="x", waiter=Waiter(), deadline_s=1, note=print), Interrupt() as stop:
        stop.request()
        second = holding(root, ("a",), run_id="2", name="y", waiter=Waiter(stop), deadline_s=60, note=print)
        with pytest.raises(Interrupted), second:
            pass


def test_runtime_directory_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(MachineError, match="not this user's alone"):
        open_runtime_dir({"HANGDRILL_RUNTIME_DIR": str(tmp_path / "link")})


def test_layout_of_a_run_is_private(tmp_path):
    layout = create_run_dir(tmp_path / "deep" / "run")
    assert isinstance(layout, RunLayout)
    assert layout.root.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="a pid namespace is made as root")
def test_drill_whose_controller_lives_in_another_pid_namespace_is_left_alone(environ, run_id):
    """Its processes name the controller by its number there, which here is nobody's or a stranger's."""
    text = (
        "import os, subprocess, sys\n"
        "ticks = open('/proc/self/stat').read().rpartition(')')[2].split()[19]\n"
        f"marks = {{'HANGDRILL_RUN_ID': '{run_id}', 'HANGDRILL_CONTROLLER': f'{{os.getpid()}}:{{ticks}}'}}\n"
        "child = subprocess.Popen(['sleep', '600'], env={**os.environ, **marks})\n"
        "print('ready', flush=True); sys.stdin.read(); child.kill()\n"
    )
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdout.readline() == "ready\n"
        mine = [found for found in Supervisor(run_id, own_id()).processes() if found.name == "sleep"]
        found = clean(dry_run=False, environ=environ)
        assert len(mine) == 1
        assert not any(f"({mine[0].id.pid})" in item.name for item in found)
        controller.stdin.close()
        controller.wait(30)
    assert controller.returncode == 0, "nobody ended it"


def test_what_a_dead_controller_was_told_in_an_image_is_removed_and_a_living_ones_is_left(
    environ, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = {owner: f"{STREAMS}{owner.pid}-{owner.started_ticks}-abc" for owner in (DEAD, own_id())}
    for name in (*names.values(), f"{STREAMS}-x", f"{STREAMS}stranger"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "out").touch()
    assert [found.name for found in clean(dry_run=True, environ=environ)] == [str(tmp_path / names[DEAD])]
    clean(dry_run=False, environ=environ)
    assert {path.name for path in tmp_path.iterdir()} == {names[own_id()], f"{STREAMS}-x", f"{STREAMS}stranger"}
