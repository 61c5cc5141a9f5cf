"""The ready manifest's pod, really played by podman: a job of one's own hangs, and its sidecar has the evidence."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from box_requests import CHECKOUT, box_request, prepare_run
from podman_lab import podman_lab, why_no_podman

from hangdrill import diagnose
from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.box import box_of
from hangdrill.launchers.container import root_archive
from hangdrill.launchers.kubernetes_check import read_documents
from hangdrill.launchers.kubernetes_reduction import mounts_of, reduced
from hangdrill.launchers.podman import Podman
from hangdrill.model.run import Manifest

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(600)]
MANIFEST = CHECKOUT / "docs/examples/kubernetes-jobset.yaml"
HANGS = """
import time
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
for step in range(10):
    if step == 6 and dist.get_rank() == 1:
        time.sleep(300)
    dist.all_reduce(torch.ones(1))
"""


@pytest.fixture(scope="module")
def podman():
    if why := why_no_podman():
        pytest.skip(why)
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    with podman_lab() as environ:
        yield environ


def adapted(template, script: Path, evidence: Path, image: str):
    """The marked places changed: image, script, number of ranks, user, and the volume for the evidence."""
    spec = template["spec"]
    (sidecar,), (ranks,) = spec["initContainers"], spec["containers"]
    for container in (sidecar, ranks):
        container["image"] = image
        container["securityContext"] |= {"runAsUser": os.getuid(), "runAsGroup": os.getgid(), "runAsNonRoot": False}
        container["env"].append({"name": "PYTHONPATH", "value": str(CHECKOUT)})
    ranks["env"].append({"name": "GLOO_SOCKET_IFNAME", "value": "lo"})
    sidecar["command"] = [sys.executable, *sidecar["command"][1:], "--stall-after-s", "2"]
    ranks["command"] = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"),
        *("--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1", "-m", "hangdrill.rank", str(script)),
    ]
    volume = next(one for one in spec["volumes"] if one["name"] == "evidence")
    del volume["persistentVolumeClaim"]
    volume["hostPath"] = {"path": str(evidence)}
    template.setdefault("metadata", {})["labels"] = {"hangdrill.run": image.rpartition(":")[2]}
    return template


def test_own_job_hangs_in_a_pod_and_its_sidecar_has_the_evidence_that_names_the_culprit(podman, tmp_path):
    run_dir, script, evidence = prepare_run(tmp_path), tmp_path / "code/train.py", tmp_path / "evidence"
    script.parent.mkdir()
    script.write_text(HANGS)
    evidence.mkdir()
    (run_dir / "job.log").touch()
    environ = os.environ | podman | {"PYTHONPATH": str(CHECKOUT)}
    request = box_request(run_dir, target=str(script), environ=environ, cwd=str(script.parent))
    (document,) = read_documents(MANIFEST)
    template = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    box = box_of(request)
    host = tuple(mount for mount in box.mounts if not Path(mount.target).is_relative_to(run_dir))
    pod = reduced(
        adapted(template, script, evidence, Podman.image(request.run_id)),
        run_id=request.run_id,
        host={"ranks": host, "collector": host},
        log_path=str(run_dir / "job.log"),
        directory="/tmp",
    )
    places = {mount.target: mount for name in ("ranks", "collector") for mount in mounts_of(pod, name)}
    engine = Podman(environ)
    root = msgspec.structs.replace(box, mounts=tuple(places.values()), own_dirs=(*box.own_dirs, "/run/hangdrill"))
    engine.play(pod, root_archive(root), request.run_id)
    try:
        manifest = evidence / pod["metadata"]["name"] / "manifest.json"
        complete = Waiter().until(
            lambda: (
                (manifest.exists() and msgspec.json.decode(manifest.read_bytes(), type=Manifest).noticed_ns) or None
            ),
            deadline_s=60,
        )
        words = ["podman", "logs", f"{pod['metadata']['name']}-collector"]
        said = subprocess.run(words, env=environ, capture_output=True, check=False, text=True, timeout=60)
        assert complete, (said.stdout + said.stderr, sorted(evidence.rglob("*")), (run_dir / "job.log").read_text())
        engine.stop(request.run_id, 20)
        facts = engine.container(request.run_id, "collector")
        assert (facts.running, facts.exit_code) == (False, 0), "its TERM found the collector well"
    finally:
        engine.remove(request.run_id)
    assert engine.leftovers(request.run_id) == ()
    found = diagnose(manifest.parent)
    assert [culprit.rank for culprit in found.culprits] == [1]
