"""Whole drills in containers, by hangdrill's own command: what survives a removal, what does not, and what is left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from box_requests import CHECKOUT, needs_bwrap
from engine_labs import ENGINES, layers_of

from hangdrill.launchers.engine import Engine

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(1800)]

PLACES = [pytest.param("bwrap", marks=needs_bwrap), *ENGINES]
REPEATS = int(os.environ.get("HANGDRILL_CONTAINER_REPEATS", "3"))


class Place:
    """Where a drill runs: a launcher, and the variables that name its engine."""

    def __init__(self, name, engines):
        self.launcher = "container" if name in ENGINES else name
        self.engine = engines(name) if name in ENGINES else {}

    def drill(self, scenario, out: Path):
        """The exit code and the result."""
        words = ["run", f"containers/{scenario}", "--launcher", self.launcher, "--out", str(out)]
        environ = os.environ | self.engine
        environ |= {"PYTHONPATH": str(CHECKOUT), "COLUMNS": "200", "TMPDIR": str(out.parent)}
        command = [sys.executable, "-m", "hangdrill", *words]
        done = subprocess.run(command, cwd=out.parent, env=environ, capture_output=True, text=True, check=False)
        path = out / "containers" / scenario / "result.json"
        assert path.exists(), done.stdout + done.stderr
        return done.returncode, json.loads(path.read_text())


@pytest.fixture
def place(request, engines):
    return Place(request.param, engines)


def not_passed(result):
    return {check["name"]: check for check in result["checks"] if check["verdict"] != "pass"}


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_dumps_on_a_volume_survive_the_containers_removal(place, tmp_path):
    code, result = place.drill("volume", tmp_path / "out")
    assert not_passed(result) == {}
    assert code == 0
    run_dir = tmp_path / "out/containers/volume"
    assert sorted(path.name for path in (run_dir / "volumes/dumps").iterdir()) == ["fr_0", "fr_1"]
    looks = json.loads((run_dir / "inspection.json").read_text())["files"]
    assert {look["when"] for look in looks if look["path"] == "/mnt/dumps/fr_1" and look["exists"]} == {
        "collected",
        "container-removal",
    }


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_dumps_in_the_containers_own_layer_fail_with_that_reason_alone(place, tmp_path):
    code, result = place.drill("own-layer", tmp_path / "out")
    problems = not_passed(result)
    assert set(problems) == {"survives-container-removal"}
    problem = problems["survives-container-removal"]
    assert (code, problem["verdict"], problem["ranks"]) == (1, "fail", {"0": "fail", "1": "fail"})
    assert "fr_1 is gone after container-removal: /tmp/dumps is in the container's own layer" in problem["detail"]
    assert "job.volumes" in problem["mend"]


@pytest.mark.parametrize("place", ["torchrun", *PLACES], indirect=True)
def test_one_scenario_passes_unchanged_on_every_launcher(place, tmp_path):
    code, result = place.drill("collector", tmp_path / "out")
    assert not_passed(result) == {}
    assert code == 0
    assert [(one["rank"], one["basis"]) for one in result["diagnosis"]["culprits"]] == [(1, "observed")]


def left_on_this_host(out: Path, engine) -> dict[str, set[str]]:
    """Everything that a container drill could leave, by kind; run directories are what it shall leave."""
    own = [process for process in psutil.process_iter() if _is_ours(process, out)]
    return {
        "processes": {f"{process.pid} {process.create_time()}" for process in own},
        "namespaces": {str(Path(f"/proc/{process.pid}/ns/mnt").readlink()) for process in own},
        "mounts": set(Path("/proc/self/mountinfo").read_text().splitlines()),
        "temporary": {str(path) for path in (*Path("/tmp").glob("h*d*"), *Path("/dev/shm").iterdir())},
        "containers": {name for _, name, _ in Engine(engine).runs()} if engine else set(),
        "layers": layers_of(engine) if engine else set(),
        "cgroups": {
            str(path) for name in ("docker", "libpod*") for path in Path("/sys/fs/cgroup").glob(f"*/{name}/*/")
        },
        "beside the run": {path.name for path in out.parent.iterdir()},
    }


def _is_ours(process: psutil.Process, out: Path) -> bool:
    """By its arguments or its environment: in a container too they name the run directory."""
    try:
        words = (*process.cmdline(), *process.environ().values())
    except psutil.Error:
        return False
    return process.status() != psutil.STATUS_ZOMBIE and any(str(out) in word for word in words)


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_repeated_container_drills_leave_nothing(place, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    before = left_on_this_host(out, place.engine)
    for number in range(REPEATS):
        _, result = place.drill("own-layer", out / str(number))
        assert result["verdict"] == "fail"
    after = left_on_this_host(out, place.engine)
    assert {kind: after[kind] - before[kind] for kind in after} == {kind: set() for kind in after}
