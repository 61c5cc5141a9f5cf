"""The pod that podman plays: the template of a cluster, less what podman 4.3 does not know, and nothing forgotten."""

import sys
from pathlib import Path

import pytest
from box_requests import CHECKOUT, box_request, prepare_run, volume

from hangdrill.launchers.kubernetes_podman import PodmanLauncher
from hangdrill.launchers.kubernetes_reduction import empty_dirs_of, mounts_of
from hangdrill.model.errors import MachineError
from hangdrill.model.kubernetes import Kubernetes

COLLECTOR = (sys.executable, "-m", "hangdrill.collector.sidecar", "--exit-file", "x", "--")


@pytest.fixture
def played(tmp_path):
    """The reduced pod and the root directory of a request."""

    def make(settings=None, **changes):
        run_dir = prepare_run(tmp_path)
        (run_dir / "collector.log").touch()
        request = box_request(run_dir, **{"collector": COLLECTOR, **changes})
        return *PodmanLauncher(settings or Kubernetes()).pod(request), request

    return make


def containers(pod):
    return {one["name"]: one for one in pod["spec"]["containers"]}


def places(pod, name):
    return {mount.target: mount for mount in mounts_of(pod, name)}


def test_sidecar_becomes_a_plain_container(played):
    pod, _, _ = played()
    assert list(containers(pod)) == ["ranks", "collector"]
    assert "initContainers" not in pod["spec"]
    assert not any("restartPolicy" in one for one in containers(pod).values())
    assert pod["spec"]["shareProcessNamespace"] is True


def test_run_volume_becomes_a_host_path_for_each_part(played):
    pod, _, request = played()
    ranks, collector = places(pod, "ranks"), places(pod, "collector")
    assert ranks[f"{request.run_dir}/native"].source == f"{request.run_dir}/native"
    assert not ranks[f"{request.run_dir}/agent"].writable
    assert collector[f"{request.run_dir}/evidence"].writable
    assert f"{request.run_dir}/evidence" not in ranks
    assert request.run_dir not in ranks


def test_empty_dirs_bear_the_runs_name_since_podman_has_one_space_of_names(played):
    pod, _, request = played(Kubernetes(empty_dirs=("/scratch",), socket_medium="Memory"))
    found = empty_dirs_of(pod, "ranks")
    assert set(found) == {"/scratch", f"{request.run_dir}/sockets"}
    assert all(request.run_id in name for name in found.values())
    assert empty_dirs_of(pod, "collector") == found
    assert [volume["emptyDir"] for volume in pod["spec"]["volumes"] if "emptyDir" in volume] == [{}, {}]


def test_hosts_programs_and_both_environments_are_mounted_read_only(played):
    pod, _, _ = played()
    ranks, collector = places(pod, "ranks"), places(pod, "collector")
    assert not ranks["/usr"].writable
    assert str(CHECKOUT) in collector, "hangdrill itself"
    prefix = str(Path(sys.executable).absolute().parent.parent)
    for seen in (ranks, collector):
        assert any(prefix == place or prefix.startswith(f"{place}/") for place in seen)


def test_every_mount_has_a_place_in_the_root_directory(played):
    pod, box, _ = played(volumes=(volume("dumps:/mnt/dumps"),))
    targets = {mount.target for mount in box.mounts} | set(box.own_dirs)
    for name in containers(pod):
        assert set(places(pod, name)) | set(empty_dirs_of(pod, name)) <= targets
    assert "/tmp" in box.own_dirs


def test_volumes_of_the_job_are_writable_for_ranks_alone(played):
    pod, _, request = played(volumes=(volume("dumps:/mnt/dumps"),))
    assert places(pod, "ranks")["/mnt/dumps"].source == f"{request.run_dir}/volumes/dumps"
    assert places(pod, "ranks")["/mnt/dumps"].writable
    assert not places(pod, "collector")["/mnt/dumps"].writable


def test_collector_bears_no_mark_by_which_the_supervisor_would_end_it_with_the_ranks(played):
    pod, _, _ = played(environ={"HANGDRILL_RUN_ID": "hd-1", "HANGDRILL_AGENT": "x", "PATH": "/usr/bin"})
    names = {name: {one["name"] for one in container["env"]} for name, container in containers(pod).items()}
    assert "HANGDRILL_RUN_ID" in names["ranks"]
    assert not any(name.startswith("HANGDRILL_") for name in names["collector"])


def test_what_podman_does_not_know_is_left_out(played):
    rich = Kubernetes(resources={"cpu": "4"}, node_selector={"a": "b"}, service_account="trainer")
    pod, _, _ = played(rich)
    assert {"nodeSelector", "serviceAccountName", "securityContext"} & set(pod["spec"]) == set()
    for container in containers(pod).values():
        assert "resources" not in container
        assert {one["name"] for one in container["env"] if "valueFrom" in one} == {"POD_NAME"}


def test_missing_podman_is_the_machines_fault_with_the_next_step(tmp_path):
    launcher = PodmanLauncher(Kubernetes())
    launcher._torchrun = type("Quiet", (), {"check": lambda *_: None})()
    request = box_request(prepare_run(tmp_path), environ={"PATH": str(tmp_path)})
    with pytest.raises(MachineError, match=r"podman is not installed(.|\n)*apt-get install podman"):
        launcher.check(request)


def test_names_in_parentheses_mean_what_they_mean_in_a_cluster(played):
    pod, _, _ = played(collector=("echo", "$(POD_NAME)"), environ={"A": "$(POD_NAME) $$", "PATH": "/usr/bin"})
    env = {one["name"]: one.get("value") for one in containers(pod)["ranks"]["env"]}
    assert env["A"] == "$(POD_NAME) $$", "the caller's own text stays as it is"
    assert containers(pod)["collector"]["command"] == ["echo", "$(POD_NAME)"], "so does a command of hangdrill's"


def test_directory_that_is_delivered_to_is_the_collectors_alone(played, tmp_path):
    pod, _, _ = played(collector=(*COLLECTOR, "--deliver-to", str(tmp_path / "there")))
    assert places(pod, "collector")[str(tmp_path / "there")].writable
    assert str(tmp_path / "there") not in places(pod, "ranks")
