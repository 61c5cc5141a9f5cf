"""Manifests against the schemas: every planted mistake is listed with its path, also two at once; a right one: none."""

import copy

import pytest
from pod_orders import pod_order, settings

from hangdrill.launchers.kubernetes_check import check_documents, latest_version, read_documents
from hangdrill.launchers.kubernetes_manifest import documents
from hangdrill.model.errors import UsageError

pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
JOB_POD = "spec.template.spec"
SET_POD = "spec.replicatedJobs[0].template.spec.template.spec"


def right(kind: str):
    return copy.deepcopy(list(documents(pod_order(settings=settings(kind=kind)), 2)))


def pod_of(document):
    spec = document["spec"]
    job = spec["replicatedJobs"][0]["template"]["spec"] if document["kind"] == "JobSet" else spec
    return job["template"]["spec"]


def found(made, version=None):
    return {(each.document, each.path): each.what for each in check_documents(made, version)}


@pytest.mark.parametrize(("kind", "at", "pod"), [("job", 1, JOB_POD), ("jobset", 0, SET_POD)])
class TestPlantedInAPod:
    def test_none_at_all(self, kind, at, pod):
        assert found(right(kind)) == {}

    def test_unknown_field(self, kind, at, pod):
        made = right(kind)
        pod_of(made[at])["terminationGracePeriod"] = 30
        (mistake,) = check_documents(made)
        assert (mistake.document, mistake.path) == (at, f"{pod}.terminationGracePeriod")
        assert mistake.hint == "did you mean terminationGracePeriodSeconds?"

    def test_wrong_type(self, kind, at, pod):
        made = right(kind)
        pod_of(made[at])["shareProcessNamespace"] = "yes"
        assert found(made) == {(at, f"{pod}.shareProcessNamespace"): 'expected boolean, got string "yes"'}

    def test_missing_field(self, kind, at, pod):
        made = right(kind)
        del pod_of(made[at])["containers"][0]["name"]
        assert found(made) == {(at, f"{pod}.containers[0].name"): "it must be set"}

    def test_two_unknown_fields_of_one_table_are_two_mistakes(self, kind, at, pod):
        made = right(kind)
        pod_of(made[at])["volumes"][0] |= {"emptydir": {}, "medium": "Memory"}
        assert set(found(made)) == {(at, f"{pod}.volumes[0].emptydir"), (at, f"{pod}.volumes[0].medium")}

    def test_mistakes_in_several_places_are_all_listed(self, kind, at, pod):
        made = right(kind)
        spec = pod_of(made[at])
        spec["initContainers"][0]["restartPolicies"] = "Always"
        spec["containers"][0]["command"] = "python train.py"
        spec["containers"][0]["env"][0]["value"] = 1
        assert set(found(made)) == {
            (at, f"{pod}.initContainers[0].restartPolicies"),
            (at, f"{pod}.containers[0].command"),
            (at, f"{pod}.containers[0].env[0].value"),
        }


def test_mistakes_of_the_jobset_itself_are_all_listed():
    (jobset,) = right("jobset")
    spec = jobset["spec"]
    spec["failurePolicy"] = {"maxRestart": 0, "restartStrategy": "Never"}
    spec["network"]["enableDNSHostnames"] = "true"
    spec["replicatedJobs"][0]["replicas"] = -1
    del spec["replicatedJobs"][0]["name"]
    spec["suspended"] = True
    assert set(found([jobset])) == {
        (0, "spec.failurePolicy.maxRestart"),
        (0, "spec.failurePolicy.restartStrategy"),
        (0, "spec.network.enableDNSHostnames"),
        (0, "spec.replicatedJobs[0].replicas"),
        (0, "spec.replicatedJobs[0].name"),
        (0, "spec.suspended"),
    }


def test_every_document_of_a_file_is_checked():
    service, job = right("job")
    service["spec"]["clusterIp"] = "None"
    job["spec"]["backoffLimit"] = "0"
    assert set(found([service, job])) == {(0, "spec.clusterIp"), (1, "spec.backoffLimit")}


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (["a list"], ""),
        ({"kind": "Job"}, "apiVersion"),
        ({"apiVersion": "batch/v1"}, "kind"),
        ({"apiVersion": "batch/v1", "kind": "Jobb"}, "kind"),
        ({"apiVersion": "batch/v2", "kind": "Job"}, "kind"),
        ({"apiVersion": "v1", "kind": "../job-batch"}, "kind"),
        ({"apiVersion": "jobset.x-k8s.io/v1alpha1", "kind": "JobSet"}, "kind"),
    ],
)
def test_what_is_no_known_manifest_is_a_mistake_and_not_a_crash(document, path):
    assert [each.path for each in check_documents([document])] == [path]


def test_older_kubernetes_has_schemas_of_its_own():
    made = right("job")
    assert found(made, "1.29") == {}
    assert (1, f"{JOB_POD}.initContainers[0].restartPolicy") in found(made, "1.27"), "sidecars came with 1.28"


def test_unknown_version_names_those_that_are_known():
    with pytest.raises(UsageError, match=rf"no schemas of Kubernetes 1\.999(.|\n)*{latest_version()}"):
        check_documents([], "1.999")


@pytest.mark.parametrize("text", ["a: [1, 2", "", "---\n---\n", "\x00"])
def test_file_that_is_no_manifest_is_refused_with_its_name(tmp_path, text):
    path = tmp_path / "pod.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"pod\.yaml"):
        read_documents(path)


@pytest.mark.parametrize(("kind", "at", "pod"), [("job", 1, JOB_POD), ("jobset", 0, SET_POD)])
class TestWhatSchemasLeaveOpen:
    def test_restart_policy_that_is_none(self, kind, at, pod):
        made = right(kind)
        pod_of(made[at])["restartPolicy"] = "Sometimes"
        pod_of(made[at])["initContainers"][0]["restartPolicy"] = "Never"
        assert set(found(made)) == {(at, f"{pod}.restartPolicy"), (at, f"{pod}.initContainers[0].restartPolicy")}

    def test_restart_policy_that_no_job_may_have(self, kind, at, pod):
        made = right(kind)
        del pod_of(made[at])["restartPolicy"]
        assert set(found(made)) == {(at, f"{pod}.restartPolicy")}

    def test_two_containers_of_one_name(self, kind, at, pod):
        made = right(kind)
        pod_of(made[at])["containers"][0]["name"] = "collector"
        assert set(found(made)) == {(at, f"{pod}.containers[0].name")}

    def test_two_mounts_at_one_place(self, kind, at, pod):
        made = right(kind)
        mounts = pod_of(made[at])["containers"][0]["volumeMounts"]
        mounts[1]["mountPath"] = mounts[0]["mountPath"]
        assert set(found(made)) == {(at, f"{pod}.containers[0].volumeMounts[1].mountPath")}


def test_mount_without_a_volume_is_found_where_nobody_adds_volumes():
    made = right("job")
    pod_of(made[1])["containers"][0]["volumeMounts"][0]["name"] = "runs"
    assert found(made) == {(1, f"{JOB_POD}.containers[0].volumeMounts[0].name"): 'there is no volume "runs"'}
    (jobset,) = right("jobset")
    pod_of(jobset)["containers"][0]["volumeMounts"][0]["name"] = "claimed"
    assert found([jobset]) == {}, "a JobSet may add the volumes of its claim policies"


@pytest.mark.parametrize("wrong", [{"containers": [1]}, {"containers": [{"volumeMounts": "x"}], "volumes": {}}])
def test_wrong_shapes_are_for_the_schemas_to_tell(wrong):
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": wrong}
    assert check_documents([made])


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: x}]}\n"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (POD + BOMB, "more than 1000000 values"),
        ("&a\napiVersion: v1\nspec: *a\n", "an anchor stands within itself"),
        (POD + "spec: {containers: []}\n", r"spec is there twice \(line 5\)"),
        ("[" * 5000, "nested too deeply"),
        (POD + "x: " + "[" * 150 + "]" * 150, "nested more than 100 deep"),
        (POD + "x: 2026-99-99\n", "month must be in"),
        (POD + "x: !!int abc\n", "invalid literal"),
        (POD + "x: " + "9" * 6000, "integer"),
        ("apiVersion: v1\n\tkind: Pod\n", r"line 2"),
        ("", "there is no document"),
    ],
)
def test_a_file_that_is_no_manifest_is_one_error_and_takes_no_time(tmp_path, text, why):
    path = tmp_path / "my.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=why):
        read_documents(path)


def test_an_anchor_and_a_merged_key_are_no_key_twice(tmp_path):
    path = tmp_path / "my.yaml"
    labels = "metadata: {name: a, labels: &l {x: y, z: w}, annotations: {<<: *l, x: n}}\n"
    path.write_text("apiVersion: v1\nkind: Pod\n" + labels + "spec: {containers: [{name: a, image: x}]}\n")
    assert found(read_documents(path)) == {}


@pytest.mark.parametrize("kind", ["K" * 5000, "../Pod", "P\0od", "", "Pod/x"])
def test_a_kind_that_no_schema_can_have_is_a_mistake(kind):
    assert len(found([{"apiVersion": "v1", "kind": kind}])) == 1
