"""SIGKILL at any moment of an upload: whole objects with the right hash are there or none, and a resume completes."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from cutting_proxy import CuttingProxy
from delivery_tools import RUN, STAMP, make_evidence
from s3_labs import BUCKET

KILLS = 20
RANKS, SIZE = 3, 400_000
ON_DISK = range(1, 17)
"""Calls into the kernel of one delivery to a directory; the last ones are never reached, which is a case too."""


class Zygote:
    """Forks deliveries. Starting a Python with s3fs for each would take most of the time of these tests."""

    def __init__(self, environ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "kill_zygote.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )

    def start(self, evidence, url, kill_at=0) -> int:
        """A delivery; its pid."""
        self.process.stdin.write(f"{evidence} {url} {kill_at}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def ended(self, pid) -> int:
        """Its status as waitpid gives it; a delivery has limits of its own."""
        words = self.process.stdout.readline().split()
        assert words[:2] == [str(pid), "over"]
        return int(words[2])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def zygote(request):
    found = []

    def make(environ):
        found.append(Zygote(environ))
        return found[0]

    yield make
    for one in found:
        one.close()


def wanted_of(evidence):
    """name -> sha256 of everything that must be there in the end."""
    names = [*sorted(path.name for path in evidence.glob("rank_*")), "manifest.json"]
    return {name: hashlib.sha256((evidence / name).read_bytes()).hexdigest() for name in names}


def objects_in(client, prefix):
    """name -> sha256, as another client reads them."""
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    return {
        one["Key"].rpartition("/")[2]: hashlib.sha256(
            client.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read()
        ).hexdigest()
        for one in listed
    }


def test_a_kill_while_s3_is_written_to_leaves_whole_objects_only_and_is_completed(
    seaweed, zygote, tmp_path, record_property
):
    proxy = CuttingProxy(int(seaweed.url.rpartition(":")[2]))
    deliveries = zygote(seaweed.environ(AWS_ENDPOINT_URL=proxy.url))
    chance, client, hits = random.Random(20261130), seaweed.client(), []
    try:
        for number in range(KILLS):
            evidence, prefix = tmp_path / str(number), uuid.uuid4().hex
            make_evidence(evidence, ranks=RANKS, size=SIZE, salt=b"%d" % number)
            wanted = wanted_of(evidence)
            proxy.allow(chance.randrange(1, RANKS * SIZE))
            pid = deliveries.start(evidence, f"s3://{BUCKET}/{prefix}")
            assert proxy.held.wait(60), "the upload did not come as far as it was to be killed"
            os.kill(pid, signal.SIGKILL)
            assert os.WTERMSIG(deliveries.ended(pid)) == signal.SIGKILL
            proxy.cut()
            there = objects_in(client, prefix)
            assert there.items() <= wanted.items(), "an object is there that is not whole"
            assert "manifest.json" not in there
            hits.append(f"{proxy.passed} bytes: {len(there)} of {len(wanted)} whole")
            proxy.allow(None)
            assert deliveries.ended(deliveries.start(evidence, f"s3://{BUCKET}/{prefix}")) == 0
            assert objects_in(client, prefix) == wanted
            assert client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []) == []
    finally:
        proxy.close()
    record_property("hits", "; ".join(hits))
    print("\n".join(hits))
    assert len({hit.partition(": ")[2] for hit in hits}) > 1, "all kills hit the same artifact"


def test_a_kill_at_each_step_on_a_disk_leaves_whole_files_only_and_is_completed(zygote, tmp_path):
    deliveries = zygote(dict(os.environ))
    killed = 0
    for kill_at in ON_DISK:
        evidence, target = tmp_path / f"e{kill_at}", tmp_path / f"t{kill_at}"
        make_evidence(evidence, ranks=2, size=50_000)
        wanted = wanted_of(evidence)
        status = deliveries.ended(deliveries.start(evidence, target, kill_at))
        killed += os.WIFSIGNALED(status)
        there = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in target.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        }
        assert there.items() <= wanted.items()
        assert deliveries.ended(deliveries.start(evidence, target)) == 0
        left = next((target / "train" / f"{STAMP}-{RUN}").iterdir())
        assert sorted(path.name for path in left.iterdir()) == sorted(wanted), "a temporary file is left"
        assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in left.iterdir()} == wanted
    assert killed >= 10, "the kills did not hit"
