"""What is rendered for a cluster: one pod template in a JobSet or an Indexed Job, without a mistake by the schemas."""

import pytest
from pod_orders import RUN_ID, cluster_request, pod_order, settings

from hangdrill.launchers.kubernetes import ClusterLauncher
from hangdrill.launchers.kubernetes_check import check_documents
from hangdrill.launchers.kubernetes_manifest import documents, first_pod_host, to_yaml
from hangdrill.launchers.kubernetes_pod import pod_template
from hangdrill.model.errors import UsageError
from hangdrill.model.kubernetes import RunVolume
from hangdrill.model.scenario import Volume

RICH = {
    "gpus": 8,
    "resources": {"cpu": "32", "memory": "512Gi"},
    "node_selector": {"gpu": "h200"},
    "service_account": "trainer",
    "annotations": {"example.com/team": "infra"},
    "empty_dirs": ("/scratch",),
    "socket_medium": "disk",
    "collector_image": "registry.example/hangdrill:1",
}


def containers(template):
    spec = template["spec"]
    return {one["name"]: one for one in (*spec["containers"], *spec.get("initContainers", ()))}


def places(container):
    return {mount["mountPath"]: mount for mount in container["volumeMounts"]}


@pytest.mark.parametrize("nnodes", [1, 4])
@pytest.mark.parametrize("volume", ["pvc:drills", "hostPath:/mnt/runs", "nfs:server:/exports/runs"])
@pytest.mark.parametrize("kind", ["jobset", "job"])
@pytest.mark.parametrize("rich", [{}, RICH], ids=["plain", "rich"])
def test_every_manifest_is_right_by_the_published_schemas(kind, volume, nnodes, rich):
    order = pod_order(settings=settings(kind=kind, run_volume=volume, **rich))
    assert check_documents(documents(order, nnodes)) == ()


def test_collector_is_a_native_sidecar_and_starts_before_the_ranks():
    template = pod_template(pod_order())
    (sidecar,) = template["spec"]["initContainers"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("collector", "Always")
    assert [one["name"] for one in template["spec"]["containers"]] == ["ranks"]
    assert template["spec"]["terminationGracePeriodSeconds"] == 60
    assert template["spec"]["shareProcessNamespace"] is True


def test_a_road_of_torch_alone_has_no_sidecar():
    assert "initContainers" not in pod_template(pod_order(collector=()))["spec"]


def test_both_run_as_one_user_and_without_privileges():
    contexts = [one["securityContext"] for one in containers(pod_template(pod_order())).values()]
    assert contexts[0] == contexts[1]
    assert contexts[0] == {
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_ranks_see_their_parts_of_the_run_directory_and_never_the_evidence():
    made = containers(pod_template(pod_order()))
    ranks, collector = places(made["ranks"]), places(made["collector"])
    assert set(ranks) == {f"/mnt/runs/a/{name}" for name in ("agent", "control", "native", "sockets")} | {"/dev/shm"}
    assert ranks["/mnt/runs/a/agent"]["readOnly"]
    assert ranks["/mnt/runs/a/native"]["subPath"] == "a/native"
    assert "readOnly" not in collector["/mnt/runs/a/evidence"]
    assert collector["/mnt/runs/a/native"]["readOnly"]
    assert ranks["/mnt/runs/a/sockets"] == collector["/mnt/runs/a/sockets"]


@pytest.mark.parametrize(("medium", "kept"), [("Memory", {"medium": "Memory", "sizeLimit": "16Mi"}), ("disk", {})])
def test_sockets_are_in_an_empty_dir_of_the_medium_that_is_asked_for(medium, kept):
    volumes = pod_template(pod_order(settings=settings(socket_medium=medium)))["spec"]["volumes"]
    assert next(one for one in volumes if one["name"] == "sockets")["emptyDir"] == kept


def test_volumes_of_the_job_are_parts_of_the_run_volume_host_paths_or_memory():
    volumes = tuple(map(Volume.parse, ("dumps:/mnt/dumps", "/data/set:/data:ro", "tmpfs:/fast")))
    template = pod_template(pod_order(volumes=volumes))
    made = {one["name"]: one for one in template["spec"]["volumes"]}
    ranks = places(containers(template)["ranks"])
    assert ranks["/mnt/dumps"] == {"name": "run", "mountPath": "/mnt/dumps", "subPath": "a/volumes/dumps"}
    assert made[ranks["/data"]["name"]]["hostPath"] == {"path": "/data/set"}
    assert ranks["/data"]["readOnly"]
    assert made[ranks["/fast"]["name"]]["emptyDir"] == {"medium": "Memory"}
    assert places(containers(template)["collector"])["/mnt/dumps"]["readOnly"], "it copies, and changes nothing"


def test_everything_bears_the_run_and_nothing_is_tried_twice():
    (jobset,) = documents(pod_order(), 2)
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    for labels in (jobset["metadata"]["labels"], job["template"]["metadata"]["labels"]):
        assert labels == {"hangdrill.run": RUN_ID, "hangdrill.controller": "4711.99"}
    assert (job["backoffLimit"], jobset["spec"]["failurePolicy"]) == (0, {"maxRestarts": 0})
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 2, 2)
    assert jobset["spec"]["ttlSecondsAfterFinished"] == 3600


def test_pods_of_an_indexed_job_find_each_other_through_a_headless_service():
    service, job = documents(pod_order(settings=settings(kind="job")), 2)
    assert (service["kind"], service["spec"]["clusterIP"]) == ("Service", "None")
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"hangdrill.run": RUN_ID}
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert first_pod_host(RUN_ID, "job") == f"{job['metadata']['name']}-0.{service['metadata']['name']}"


def test_several_pods_meet_at_the_first_one_and_index_is_the_nodes_rank():
    (jobset,) = ClusterLauncher(settings()).manifest(cluster_request(nnodes=2))
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    command = containers(template)["ranks"]["command"]
    assert command[command.index("--node-rank") + 1] == "$(JOB_COMPLETION_INDEX)"
    name = jobset["metadata"]["name"]
    assert command[command.index("--master-addr") + 1] == f"{name}-ranks-0-0.{jobset['spec']['network']['subdomain']}"
    env = {one["name"]: one.get("value") for one in containers(template)["ranks"]["env"]}
    assert "GLOO_SOCKET_IFNAME" not in env, "lo connects no pods"


def test_only_what_the_drill_sets_goes_to_a_cluster():
    documents = ClusterLauncher(settings()).manifest(cluster_request())
    text = to_yaml(documents)
    assert "s3cret" not in text
    assert "/home/me" not in text, "the caller's PYTHONPATH means nothing there"
    assert "value: /mnt/runs/a/agent" in text


def test_dollar_and_parenthesis_stay_as_they_are():
    template = pod_template(pod_order(command=("echo", "$(HOME)"), environ={"A": "$(B)"}))
    ranks = containers(template)["ranks"]
    assert (ranks["command"], ranks["env"][0]["value"]) == (["echo", "$$(HOME)"], "$$(B)")


@pytest.mark.parametrize("run_dir", ["/home/me/runs/a", "/mnt/runs2/a", "/mnt/runs/../etc"])
def test_run_directory_off_the_run_volume_is_refused_with_the_next_step(run_dir):
    with pytest.raises(UsageError, match=r"is not on the run volume(.|\n)*--out"):
        pod_template(pod_order(run_dir=run_dir))


def test_no_image_is_refused():
    with pytest.raises(UsageError, match="names none"):
        pod_template(pod_order(settings=settings(image=None)))


def test_yaml_reads_back_as_it_was_without_aliases():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    made = documents(pod_order(settings=settings(kind="job")), 2)
    text = to_yaml(made, "two\nlines")
    assert text.startswith("# two\n# lines\napiVersion: v1\n")
    assert tuple(yaml.safe_load_all(text)) == made
    assert "&id" not in text


@pytest.mark.parametrize("text", ["", "pvc:", "pvc:a/b", "hostPath:relative", "nfs:server", "nfs::/x", "s3:bucket"])
def test_run_volume_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="it must be pvc:CLAIM"):
        RunVolume.parse(text)
