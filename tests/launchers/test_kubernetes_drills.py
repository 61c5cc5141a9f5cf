"""Whole drills in a real pod (`podman play kube`): what survives its deletion, what does not; and nothing is left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from box_requests import CHECKOUT
from podman_lab import images, layers, podman_lab, told, why_no_podman

from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.podman import Podman

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def podman():
    """The variables that name the tests' own podman."""
    if why := why_no_podman():
        pytest.skip(why)
    with podman_lab() as environ:
        yield environ


@pytest.fixture
def start(podman, tmp_path):
    """Starts hangdrill as a user does."""

    def start_one(*words):
        environ = os.environ | podman | {"PYTHONPATH": str(CHECKOUT), "COLUMNS": "200", "TMPDIR": str(tmp_path)}
        environ |= {"HANGDRILL_RUNTIME_DIR": str(tmp_path / "runtime")}
        return subprocess.Popen(
            [sys.executable, "-m", "hangdrill", *words],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start_one


@pytest.fixture
def drill(start, tmp_path):
    """The exit code, the result and the output of one drill."""

    def drill_one(name, *words):
        with start("run", name, *words, "--out", str(tmp_path / "out")) as process:
            output, _ = process.communicate()
        path = tmp_path / "out" / name / "result.json"
        assert path.exists(), output
        return process.returncode, json.loads(path.read_text()), output

    return drill_one


def left(podman, tmp_path) -> dict[str, object]:
    """Everything that a pod could leave, by kind."""
    lab = str(Path(podman["CONTAINERS_CONF"]).parent)
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "pods": told(podman, "pod", "ls", "--format", "{{.Name}}"),
        "containers": told(podman, "ps", "--all", "--format", "{{.Names}}"),
        "images": images(podman),
        "volumes": told(podman, "volume", "ls", "--quiet"),
        "layers": max(layers(podman), 1),  # the pause image's own, made with the first pod
        "processes": {process.pid for process in psutil.process_iter() if _is_of(process, str(tmp_path), lab)},
        "mounts": {line for line in mounts if (str(tmp_path) in line or f"{lab}/" in line) and line.split()[4] != lab},
        "cgroups": {str(path) for path in Path("/sys/fs/cgroup").glob("*/libpod_parent/*/") if len(path.name) == 64},
    }


def _is_of(process: psutil.Process, *places: str) -> bool:
    try:
        words = (*process.cmdline(), *process.environ().values())
    except psutil.Error:
        return False
    return process.status() != psutil.STATUS_ZOMBIE and any(place in word for word in words for place in places)


@pytest.fixture(autouse=True)
def _nothing_is_left(podman, tmp_path):
    """Of every drill of this file: the same before and after, but for the mount that the storage makes for itself."""
    before = left(podman, tmp_path)
    yield
    after = left(podman, tmp_path)
    after["mounts"] -= {
        line for line in after["mounts"] if line.split()[4].endswith(("/data/overlay", "/netns/default"))
    }
    before["mounts"] -= {
        line for line in before["mounts"] if line.split()[4].endswith(("/data/overlay", "/netns/default"))
    }
    assert {kind: (before[kind], after[kind]) for kind in after if after[kind] != before[kind]} == {}


def not_passed(result):
    return {check["name"]: check for check in result["checks"] if check["verdict"] != "pass"}


def test_one_scenario_of_containers_passes_unchanged_in_a_pod(drill, tmp_path):
    code, result, output = drill("containers/collector", "--launcher", "kubernetes")
    assert not_passed(result) == {}, output
    assert code == 0
    assert [(one["rank"], one["basis"]) for one in result["diagnosis"]["culprits"]] == [(1, "observed")]
    assert (tmp_path / "out/containers/collector/control/collector.exit").read_text() == "0\n"


@pytest.mark.parametrize("name", ["collector", "collector-graceful"])
def test_evidence_of_the_sidecar_survives_a_deletion(drill, tmp_path, name):
    code, result, output = drill(f"kubernetes/{name}")
    assert not_passed(result) == {}, output
    assert code == 0
    looks = json.loads((tmp_path / "out/kubernetes" / name / "inspection.json").read_text())["files"]
    assert {look["when"] for look in looks if look["exists"] and "evidence/" in look["path"]} == {
        "collected",
        "pod-deletion",
    }


def test_native_dumps_on_a_host_path_survive_a_forced_deletion(drill, tmp_path):
    code, result, output = drill("kubernetes/volume")
    assert not_passed(result) == {}, output
    assert code == 0
    dumps = tmp_path / "out/kubernetes/volume/volumes/dumps"
    assert sorted(path.name for path in dumps.iterdir()) == ["fr_0", "fr_1"]


def test_native_dumps_in_an_empty_dir_fail_with_that_reason_alone(drill):
    code, result, output = drill("kubernetes/empty-dir")
    assert "is an emptyDir, which is deleted with the pod" in output, "a warning comes before the drill"
    problems = not_passed(result)
    assert set(problems) == {"survives-pod-deletion"}
    problem = problems["survives-pod-deletion"]
    assert (code, problem["verdict"], problem["ranks"]) == (1, "fail", {"0": "fail", "1": "fail"})
    assert (
        "fr_1 is gone after pod-deletion: /scratch is in an emptyDir, which is deleted with the pod"
        in problem["detail"]
    )
    assert "job.volumes" in problem["mend"]


def test_clean_ends_the_pod_of_a_killed_controller(start, podman, tmp_path):
    journal = tmp_path / "out/kubernetes/collector/journal.jsonl"
    with start("run", "kubernetes/collector", "--out", str(tmp_path / "out")) as controller:
        held = Waiter().until(
            lambda: (journal.exists() and "fault-confirmed" in journal.read_text()) or None, deadline_s=240
        )
        controller.kill()
        output, _ = controller.communicate()
    assert held, output
    assert Podman(os.environ | podman).pods(), "the pod outlives its controller: else this test shows nothing"
    with start("clean") as cleaning:
        output, _ = cleaning.communicate()
    assert cleaning.returncode == 0, output
