"""Whole drills in containers, by hangdrill's own command: what survives a removal, what does not, and what is left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from box_requests import CHECKOUT, needs_bwrap
from engine_labs import ENGINES, lab_of, layers_of

from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.engine import Engine

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(1800)]

PLACES = [pytest.param("bwrap", marks=needs_bwrap), *ENGINES]
REPEATS = int(os.environ.get("HANGDRILL_CONTAINER_REPEATS", "3"))


class Place:
    """Where a drill runs: a launcher, and the variables that name its engine."""

    def __init__(self, name, engines):
        self.launcher = "container" if name in ENGINES else name
        self.engine = engines(name) if name in ENGINES else {}

    def start(self, *words, out: Path):
        """hangdrill as a user starts it."""
        environ = os.environ | self.engine
        environ |= {"PYTHONPATH": str(CHECKOUT), "COLUMNS": "200", "TMPDIR": str(out.parent)}
        environ |= {"HANGDRILL_RUNTIME_DIR": str(out / "runtime")}
        command = [sys.executable, "-m", "hangdrill", *words]
        return subprocess.Popen(
            command, cwd=out.parent, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, scenario, out: Path):
        return self.start("run", f"containers/{scenario}", "--launcher", self.launcher, "--out", str(out), out=out)

    def drill(self, scenario, out: Path):
        """The exit code and the result."""
        out.mkdir(exist_ok=True)
        with self.run(scenario, out) as done:
            output, _ = done.communicate()
        path = out / "containers" / scenario / "result.json"
        assert path.exists(), output
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


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_read_only_volume_fails_with_that_reason(place, tmp_path):
    code, result = place.drill("read-only", tmp_path / "out")
    problem = not_passed(result)["every-rank-dumped"]
    assert (code, problem["verdict"], problem["ranks"]) == (1, "fail", {"0": "fail", "1": "fail"})
    assert "/mnt/dumps is on a volume that is mounted read-only" in problem["detail"]
    assert {check["verdict"] for name, check in not_passed(result).items() if name != "every-rank-dumped"} == {
        "unknown"
    }


@pytest.mark.parametrize("place", ["torchrun", *PLACES], indirect=True)
def test_one_scenario_passes_unchanged_on_every_launcher(place, tmp_path):
    code, result = place.drill("collector", tmp_path / "out")
    assert not_passed(result) == {}
    assert code == 0
    assert [(one["rank"], one["basis"]) for one in result["diagnosis"]["culprits"]] == [(1, "observed")]


def left_on_this_host(out: Path, engine) -> dict[str, set[str]]:
    """Everything that a container drill could leave, by kind; run directories are what it shall leave."""
    own_places = [str(out), *([str(lab_of(engine))] if engine else [])]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    own = [process for process in psutil.process_iter() if _is_ours(process, out)]
    return {
        "processes": {f"{process.pid} {process.create_time()}" for process in own},
        "namespaces": {str(Path(f"/proc/{process.pid}/ns/mnt").readlink()) for process in own},
        # netns/default is the engine's own: it mounts it once, with its first container.
        "mounts": {
            line for line in mounts if any(place in line for place in own_places) and "/netns/default " not in line
        },
        "temporary": {str(path) for path in Path("/tmp").glob("hangdrill*")},
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


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_clean_ends_what_a_killed_controller_left_in_a_container(place, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    journal = out / "containers/collector/journal.jsonl"
    before = left_on_this_host(out, place.engine)
    with place.run("collector", out) as controller:
        held = Waiter().until(
            lambda: (journal.exists() and "fault-confirmed" in journal.read_text()) or None, deadline_s=240
        )
        controller.kill()
        output, _ = controller.communicate()
    assert held, output
    left = left_on_this_host(out, place.engine)
    assert left["processes"], "the job outlives its controller: else this test shows nothing"
    with place.start("clean", out=out) as cleaning:
        output, _ = cleaning.communicate()
    assert cleaning.returncode == 0, output
    after = left_on_this_host(out, place.engine)
    assert {kind: after[kind] - before[kind] for kind in after} == {kind: set() for kind in after}
