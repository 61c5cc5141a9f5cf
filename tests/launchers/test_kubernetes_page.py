"""docs/kubernetes.md and its ready manifest are right: by the schemas, and in what they promise of the sidecar."""

import re
from pathlib import Path

import pytest

from hangdrill.collector.__main__ import parse
from hangdrill.drill.scenario_file import tomllib, validate
from hangdrill.launchers.kubernetes_check import check_documents, read_documents

DOCS = Path(__file__).parents[2] / "docs"
MANIFEST = DOCS / "examples/kubernetes-jobset.yaml"
PAGE = (DOCS / "kubernetes.md").read_text()

pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")


@pytest.fixture(scope="module")
def pod():
    (document,) = read_documents(MANIFEST)
    return document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


def test_ready_manifest_has_no_mistake_since_sidecars_exist():
    documents = read_documents(MANIFEST)
    assert [check_documents(documents, version) for version in ("1.29", None)] == [(), ()]


def test_collector_of_the_ready_manifest_is_a_native_sidecar_with_options_that_it_takes(pod):
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    words = sidecar["command"]
    options = parse(words[words.index("--") + 1 :])
    assert (options.sockets, options.to) == (Path("/run/hangdrill"), Path("/evidence/$(POD_NAME)"))
    assert {one["name"] for one in sidecar["env"]} >= set(re.findall(r"\$\((\w+)\)", " ".join(words)))


def test_ranks_and_collector_share_user_and_sockets_but_not_the_evidence(pod):
    (sidecar,), (ranks,) = pod["initContainers"], pod["containers"]
    assert sidecar["securityContext"] == ranks["securityContext"]
    sockets = next(one["value"] for one in ranks["env"] if one["name"] == "HANGDRILL_SOCKETS")
    for container in (sidecar, ranks):
        assert {"name": "sockets", "mountPath": sockets} in container["volumeMounts"]
    assert "evidence" not in {mount["name"] for mount in ranks["volumeMounts"]}
    evidence = next(volume for volume in pod["volumes"] if volume["name"] == "evidence")
    assert "persistentVolumeClaim" in evidence
    assert pod["terminationGracePeriodSeconds"] > 30


def test_every_mount_of_the_ready_manifest_has_a_volume(pod):
    mounted = {mount["name"] for one in (*pod["initContainers"], *pod["containers"]) for mount in one["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_scenario_of_the_page_is_one_for_a_cluster():
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    table = tomllib.loads(text) | {"title": "t"}
    assert validate(table, name="page", path=None).scenario.job.kubernetes.engine == "cluster"


def test_what_was_only_validated_is_marked():
    assert PAGE.count("**validated only**") == 3
