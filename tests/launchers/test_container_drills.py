"""Whole drills in containers, by hangdrill's own command: what survives a removal, what does not, and what is left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from box_requests import CHECKOUT, needs_bwrap

from hangdrill.launchers.engine import Engine

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(1800)]

LAUNCHERS = [pytest.param("bwrap", marks=needs_bwrap), "container"]
REPEATS = int(os.environ.get("HANGDRILL_CONTAINER_REPEATS", "3"))


@pytest.fixture
def environ(launcher, request):
    """With an engine where the launcher needs one."""
    engine = request.getfixturevalue("docker_engine") if launcher == "container" else {}
    return os.environ | engine


def drill(scenario, launcher, out: Path, environ):
    """The exit code and the result."""
    words = ["run", f"containers/{scenario}", "--launcher", launcher, "--out", str(out)]
    environ = environ | {"PYTHONPATH": str(CHECKOUT), "COLUMNS": "200", "TMPDIR": str(out.parent)}
    command = [sys.executable, "-m", "hangdrill", *words]
    done = subprocess.run(command, cwd=out.parent, env=environ, capture_output=True, text=True, check=False)
    path = out / "containers" / scenario / "result.json"
    assert path.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(path.read_text())


def not_passed(result):
    return {check["name"]: check for check in result["checks"] if check["verdict"] != "pass"}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_dumps_on_a_volume_survive_the_containers_removal(launcher, environ, tmp_path):
    code, result = drill("volume", launcher, tmp_path / "out", environ)
    assert not_passed(result) == {}
    assert code == 0
    run_dir = tmp_path / "out/containers/volume"
    assert sorted(path.name for path in (run_dir / "volumes/dumps").iterdir()) == ["fr_0", "fr_1"]
    looks = json.loads((run_dir / "inspection.json").read_text())["files"]
    assert {look["when"] for look in looks if look["path"] == "/mnt/dumps/fr_1" and look["exists"]} == {
        "collected",
        "container-removal",
    }


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_dumps_in_the_containers_own_layer_fail_with_that_reason_alone(launcher, environ, tmp_path):
    code, result = drill("own-layer", launcher, tmp_path / "out", environ)
    problems = not_passed(result)
    assert set(problems) == {"survives-container-removal"}
    problem = problems["survives-container-removal"]
    assert (code, problem["verdict"], problem["ranks"]) == (1, "fail", {"0": "fail", "1": "fail"})
    assert "fr_1 is gone after container-removal: /tmp/dumps is in the container's own layer" in problem["detail"]
    assert "job.volumes" in problem["mend"]


@pytest.mark.parametrize("launcher", ["torchrun", *LAUNCHERS])
def test_one_scenario_passes_unchanged_on_every_launcher(launcher, environ, tmp_path):
    code, result = drill("collector", launcher, tmp_path / "out", environ)
    assert not_passed(result) == {}
    assert code == 0
    assert [(one["rank"], one["basis"]) for one in result["diagnosis"]["culprits"]] == [(1, "observed")]


def left_on_this_host(out: Path, environ) -> dict[str, set[str]]:
    """Everything that a container drill could leave, by kind; run directories are what it shall leave."""
    address = environ.get("DOCKER_HOST", "")
    layers = Path(address.removeprefix("unix://")).parent / "data/overlay2" if address else Path("/no/engine")
    own = [process for process in psutil.process_iter() if _is_ours(process, out)]
    return {
        "processes": {f"{process.pid} {process.create_time()}" for process in own},
        "namespaces": {str(Path(f"/proc/{process.pid}/ns/mnt").readlink()) for process in own},
        "mounts": set(Path("/proc/self/mountinfo").read_text().splitlines()),
        "temporary": {str(path) for path in (*Path("/tmp").glob("h*d*"), *Path("/dev/shm").iterdir())},
        "containers": {name for _, name, _ in Engine(environ).runs()} if address else set(),
        "layers": {path.name for path in layers.glob("[0-9a-f]*")},
        "cgroups": {str(path) for path in Path("/sys/fs/cgroup").glob("**/docker/*/")},
        "beside the run": {path.name for path in out.parent.iterdir()},
    }


def _is_ours(process: psutil.Process, out: Path) -> bool:
    """By its arguments or its environment: in a container too they name the run directory."""
    try:
        words = (*process.cmdline(), *process.environ().values())
    except psutil.Error:
        return False
    return process.status() != psutil.STATUS_ZOMBIE and any(str(out) in word for word in words)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_repeated_container_drills_leave_nothing(launcher, environ, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    before = left_on_this_host(out, environ)
    for number in range(REPEATS):
        _, result = drill("own-layer", launcher, out / str(number), environ)
        assert result["verdict"] == "fail"
    after = left_on_this_host(out, environ)
    assert {kind: after[kind] - before[kind] for kind in after} == {kind: set() for kind in after}
