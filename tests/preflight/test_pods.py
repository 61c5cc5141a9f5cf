"""Preflight of a job in a pod: each loss is found where it is planted, and nothing is found in a good one."""

import sys

import msgspec
import pytest
from good_surroundings import good

from hangdrill.model.kubernetes import Kubernetes
from hangdrill.model.scenario import Scenario, Trigger
from hangdrill.preflight.destination import destination_findings
from hangdrill.preflight.gather import gather
from hangdrill.preflight.pods import is_empty_dir, pod_findings
from hangdrill.preflight.surroundings import Machine
from hangdrill.preflight.timeouts import timeout_findings

POD = Kubernetes()


def ids(facts):
    return {finding.id for finding in pod_findings(facts)}


def test_good_pod_has_no_finding():
    assert ids(good(pod=POD)) == set()


def test_job_that_is_in_no_pod_has_no_finding():
    assert ids(good(job={"trigger": Trigger.NATIVE})) == set()


def test_empty_dir_is_found():
    assert ids(good(place={"in_empty_dir": True})) == {"dump-in-empty-dir"}


@pytest.mark.parametrize("trigger", [Trigger.NATIVE, Trigger.DEBUG_SERVER])
def test_missing_sidecar_is_found(trigger):
    assert ids(good(pod=POD, job={"trigger": trigger})) == {"sidecar-missing"}


def test_memory_medium_is_noted_where_there_is_a_limit():
    limited = msgspec.structs.replace(POD, resources={"memory": "64Gi"})
    assert ids(good(pod=limited)) == {"sockets-in-memory"}
    assert ids(good(pod=msgspec.structs.replace(limited, socket_medium="disk"))) == set()


@pytest.mark.parametrize(("grace_s", "found"), [(30.0, {"grace-too-short"}), (31.0, set())])
def test_grace_of_a_pod_is_held_against_torchruns(grace_s, found):
    facts = good(pod=POD, grace_s=grace_s, job={"launcher": "kubernetes"})
    findings = {finding.id: finding.where for finding in timeout_findings(facts)}
    assert set(findings) == found
    assert set(findings.values()) <= {"job.kubernetes.grace_s"}


@pytest.fixture
def look(monkeypatch, tmp_path):
    gathering = sys.modules[gather.__module__]
    monkeypatch.setattr(gathering, "ask_torch", lambda *_, **__: (None, "not asked"))
    monkeypatch.setattr(gathering, "look_at_machine", lambda _: Machine())

    def of(dump_to, **kubernetes):
        job = {"launcher": "kubernetes", "workload": "all-reduce", "kubernetes": kubernetes}
        table = {"title": "t", "job": job, "recorder": {"dump_to": dump_to, "trigger": "native"}}
        return gather(
            python=sys.executable, environ={}, cwd=tmp_path, umask=0o077, scenario=msgspec.convert(table, Scenario)
        )

    return of


def test_scenario_with_an_empty_dir_is_found_before_anything_runs(look):
    facts = look("/scratch/dumps", empty_dirs=["/scratch"])
    assert ids(facts) == {"dump-in-empty-dir", "sidecar-missing"}
    assert {finding.id for finding in destination_findings(facts)} == set()


def test_own_layer_of_a_pods_container_is_found(look):
    assert "dump-on-container-layer" in {finding.id for finding in destination_findings(look("/dumps"))}


def test_grace_comes_from_the_scenario(look):
    assert look("/dumps", grace_s=7).grace_s == 7.0


LINE = "{number} 1 254:1 {root} {point} rw,relatime - ext4 /dev/vda rw"


@pytest.mark.parametrize(
    ("root", "is_one"),
    [
        ("/var/lib/kubelet/pods/1f/volumes/kubernetes.io~empty-dir/scratch", True),
        ("/var/lib/kubelet/pods/1f/volumes/kubernetes.io~nfs/scratch", False),
        ("/", False),
    ],
)
def test_empty_dir_is_known_by_the_mount_table(tmp_path, root, is_one):
    place = tmp_path / "scratch"
    place.mkdir()
    table = tmp_path / "mountinfo"
    table.write_text(
        "\n".join([LINE.format(number=1, root="/", point="/"), LINE.format(number=2, root=root, point=place)])
    )
    assert is_empty_dir(place / "dumps", table) is is_one


def test_a_mount_table_that_cannot_be_read_tells_of_none(tmp_path):
    assert not is_empty_dir(tmp_path, tmp_path / "none")
