"""The rules of [job.kubernetes]: each mistake is found where it is made, and the same file is right elsewhere."""

import pytest
from fake_job import scenario

from hangdrill.drill.scenario_checks import mistakes, warnings

CLUSTER = {
    "engine": "cluster",
    "context": "staging",
    "image": "registry.example/train:1",
    "run_volume": "pvc:drills",
    "mount_path": "/mnt/runs",
}


def pod(recorder=None, expect=None, job=None, **kubernetes):
    return scenario(
        job={"launcher": "kubernetes", "kubernetes": kubernetes, **(job or {})},
        recorder=recorder or {},
        expect={"within_s": 5.0, "culprit": 1, **(expect or {})},
    )


def keys(made):
    return [problem.key for problem in mistakes(made)]


def test_podman_needs_no_setting():
    assert keys(pod()) == []


def test_cluster_with_all_it_needs_is_right_with_several_pods_too():
    assert keys(pod(**CLUSTER)) == []
    assert keys(pod(job={"nnodes": 2}, **CLUSTER)) == []


@pytest.mark.parametrize("left_out", ["context", "image", "run_volume", "mount_path"])
def test_cluster_lacks(left_out):
    settings = {key: value for key, value in CLUSTER.items() if key != left_out}
    assert keys(pod(**settings)) == [f"job.kubernetes.{left_out}"]


WRONG = {
    "context without a cluster": ({"context": "staging"}, "job.kubernetes.engine"),
    "gpus with podman": ({"gpus": 1}, "job.kubernetes.gpus"),
    "bad namespace": ({"namespace": "My_Space"}, "job.kubernetes.namespace"),
    "bad service account": ({"service_account": "a/b"}, "job.kubernetes.service_account"),
    "no grace": ({"grace_s": 0}, "job.kubernetes.grace_s"),
    "negative ttl": ({"ttl_s": -1}, "job.kubernetes.ttl_s"),
    "relative emptyDir": ({"empty_dirs": ["scratch"]}, "job.kubernetes.empty_dirs"),
    "emptyDir at the root": ({"empty_dirs": ["/"]}, "job.kubernetes.empty_dirs"),
    "emptyDir with dots": ({"empty_dirs": ["/a/../b"]}, "job.kubernetes.empty_dirs"),
    "emptyDir twice": ({"empty_dirs": ["/a", "/a/"]}, "job.kubernetes.empty_dirs"),
    "bad run volume": ({**CLUSTER, "run_volume": "s3:bucket"}, "job.kubernetes.run_volume"),
    "relative mount path": ({**CLUSTER, "mount_path": "runs"}, "job.kubernetes.mount_path"),
}


@pytest.mark.parametrize(("settings", "key"), WRONG.values(), ids=WRONG)
def test_wrong_setting_is_found_at_its_key(settings, key):
    assert keys(pod(**settings)) == [key]


def test_emptydir_at_the_target_of_a_volume_is_found():
    made = pod(job={"volumes": ["dumps:/mnt/dumps"]}, empty_dirs=["/mnt/dumps"])
    assert keys(made) == ["job.kubernetes.empty_dirs"]


def test_podman_plays_one_pod():
    assert keys(pod(job={"nnodes": 2})) == ["job.nnodes"]


def test_processes_of_a_cluster_cannot_be_killed_from_here():
    assert keys(pod(expect={"survives": ["process-kill"]}, **CLUSTER)) == ["expect.survives"]
    assert keys(pod(expect={"survives": ["process-kill", "pod-deletion"]})) == []


@pytest.mark.parametrize(("place", "found"), [("/data", 1), ("file:///data", 1), ("s3://bucket/prefix", 0)])
def test_directory_of_this_host_is_no_place_for_a_clusters_collector(place, found):
    assert keys(pod(recorder={"deliver_to": place}, **CLUSTER)) == ["recorder.deliver_to"] * found
    assert keys(pod(recorder={"deliver_to": place})) == []


@pytest.mark.parametrize("teardown", ["container-removal", "scheduler-cancel", "node-tmp-wipe", "oom-kill"])
def test_teardowns_of_other_launchers_are_refused(teardown):
    assert keys(pod(expect={"survives": [teardown]})) == ["expect.survives"]


def test_pod_deletion_is_for_pods():
    made = scenario(expect={"within_s": 5.0, "culprit": 1, "survives": ["pod-deletion"]})
    assert keys(made) == ["expect.survives"]


def test_other_launchers_pass_the_table_over():
    made = scenario(job={"launcher": "bwrap", "kubernetes": {"namespace": "My_Space", "gpus": 4, "context": "x"}})
    assert keys(made) == []


def test_dumps_in_an_emptydir_are_warned_of_once():
    native = {"trigger": "native", "dump_to": "/scratch/a"}
    said = warnings(pod(recorder=native, expect={"survives": ["pod-deletion"]}, empty_dirs=["/scratch"]))
    assert [text for text in said if "recorder.dump_to" in text] == [
        "recorder.dump_to: /scratch is an emptyDir, which is deleted with the pod"
    ]


def test_dumps_in_the_containers_own_layer_are_warned_of():
    native = {"trigger": "native", "dump_to": "/dumps"}
    said = warnings(pod(recorder=native, expect={"survives": ["pod-deletion"]}))
    assert any("/dumps is the container's own, and goes with it" in text for text in said)


@pytest.mark.parametrize(
    ("grace_s", "deletion", "warned"), [(30, "graceful", 1), (31, "graceful", 0), (30, "forced", 0)]
)
def test_grace_that_leaves_nothing_for_the_collector_is_warned_of(grace_s, deletion, warned):
    assert len(warnings(pod(grace_s=grace_s, deletion=deletion))) == warned
