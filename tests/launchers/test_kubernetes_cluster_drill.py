"""A whole drill "in a cluster": the official client, an API server of the tests, and real pods behind it.

The server plays the pod template of the JobSet that it gets with podman, so that all but Kubernetes itself is real:
what is applied runs, the run volume is all that controller and pod share, and a deletion ends the pod.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from box_requests import CHECKOUT, box_request
from kube_server import KubeServer, kube_server
from podman_lab import podman_lab, why_no_podman

from hangdrill.launchers.box import box_of
from hangdrill.launchers.container import root_archive
from hangdrill.launchers.kubernetes_pod import COLLECTOR, RANKS
from hangdrill.launchers.kubernetes_reduction import empty_dirs_of, mounts_of, reduced
from hangdrill.launchers.podman import Podman

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(600)]
SCENARIO = """
title = "A JobSet is applied, its pod is deleted gracefully, and the evidence is on the run volume"
[job]
launcher = "kubernetes"
workload = "all-reduce"
nproc_per_node = 2
timeout_s = 4
[job.kubernetes]
engine = "cluster"
context = "staging"
image = "registry.example/train:1"
python = "{python}"
run_volume = "hostPath:{runs}"
mount_path = "{runs}"
deletion = "graceful"
grace_s = 20
[fault]
kind = "hold"
rank = 1
before = {{ op = "all_reduce", nth = 5 }}
[expect]
dumps = "all"
culprit = 1
survives = ["pod-deletion"]
"""


class PlayingServer(KubeServer):
    """Plays the pod of the one JobSet that it is asked to create."""

    def __init__(self, podman: dict[str, str]) -> None:
        super().__init__()
        self.environ = os.environ | podman
        self.podman = Podman(self.environ)
        self.run_id = ""

    def create(self, kind, body):
        super().create(kind, body)
        self.run_id = body["metadata"]["labels"]["hangdrill.run"]
        template = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        for container in (*template["spec"]["initContainers"], *template["spec"]["containers"]):
            container["image"] = Podman.image(self.run_id)
        template["spec"]["initContainers"][0]["env"].append({"name": "PYTHONPATH", "value": str(CHECKOUT)})
        environ = {**self.environ, "PYTHONPATH": str(CHECKOUT)}
        box = box_of(box_request(Path("/nowhere/run"), environ=environ, cwd="/tmp"))
        host = tuple(mount for mount in box.mounts if not mount.target.startswith("/nowhere"))
        names = (RANKS, COLLECTOR)
        pod = reduced(template, run_id=self.run_id, host=dict.fromkeys(names, host), log_path=None, directory="/tmp")
        places = {mount.target: mount for name in names for mount in mounts_of(pod, name)}
        own = (*box.own_dirs, *empty_dirs_of(pod, RANKS))
        root = msgspec.structs.replace(box, mounts=tuple(places.values()), own_dirs=own)
        self.podman.play(pod, root_archive(root), self.run_id)

    def look(self):
        facts = self.podman.container(self.run_id, RANKS) if self.state["pods"] else None
        if facts is not None and not facts.running:
            self.finish(facts.exit_code)

    def log(self, pod):
        words = ["podman", "logs", f"hangdrill-{self.run_id}-{RANKS}"]
        return subprocess.run(
            words, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60
        ).stdout

    def remove(self, kind, name, grace_s):
        super().remove(kind, name, grace_s)
        if kind == "pods":
            if grace_s:
                self.podman.stop(self.run_id, grace_s)
            self.podman.remove(self.run_id)


@pytest.fixture
def server(tmp_path):
    if why := why_no_podman():
        pytest.skip(why)
    pytest.importorskip("kubernetes", reason="the Kubernetes client is not installed")
    with podman_lab() as podman, kube_server(tmp_path, lambda: PlayingServer(podman)) as (made, environ):
        made.environ |= environ
        yield made


def test_drill_in_a_cluster_passes_and_leaves_nothing_there(server, tmp_path):
    runs, path = tmp_path / "runs", tmp_path / "staging.toml"
    runs.mkdir()
    path.write_text(SCENARIO.format(runs=runs, python=sys.executable))
    environ = {**server.environ, "PYTHONPATH": str(CHECKOUT), "HANGDRILL_RUNTIME_DIR": str(tmp_path / "runtime")}
    done = subprocess.run(
        [sys.executable, "-m", "hangdrill", "run", str(path), "--out", str(runs)],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    result = json.loads((runs / "staging/result.json").read_text())
    assert {one["name"]: one["detail"] for one in result["checks"] if one["verdict"] != "pass"} == {}, done.stdout
    assert done.returncode == 0
    assert [(one["rank"], one["basis"]) for one in result["diagnosis"]["culprits"]] == [(1, "observed")]
    assert "-ranks-0-0-abcde" in (runs / "staging/job.log").read_text(), "the pod's log was saved before it went"
    assert {kind: list(names) for kind, names in server.state.items() if names} == {}
    assert server.podman.leftovers(server.run_id) == ()
