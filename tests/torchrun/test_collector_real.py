"""The collector beside a real torchrun job that knows nothing of hangdrill: its ranks serve torch's control plane."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hangdrill.collector import CollectorEvent
from hangdrill.drill.waiting import Waiter
from hangdrill.model.run import ArtifactKind, Manifest, PullReason, RankState
from hangdrill.recorder import parse_dump

pytestmark = pytest.mark.torchrun

DEADLINE_S = 120.0

SCRIPT = """
import os, sys, threading
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer

rank, stalled = int(os.environ["RANK"]), int(sys.argv[2])
server = _WorkerServer(os.path.join(sys.argv[1], f"rank_{rank}.a0.sock"))
dist.init_process_group("gloo")
for step in range(4):
    if step == 3 and rank == stalled:
        threading.Event().wait(300)
    dist.all_reduce(torch.ones(8))
while stalled < 0 and not os.path.exists(os.path.join(sys.argv[1], "go")):
    threading.Event().wait(0.02)
os._exit(0)  # torch 2.15 may abort in the teardown of the interpreter: docs/what-torch-does.md
"""


class Run:
    """A job and a collector beside it."""

    def __init__(self, directory, stalled):
        self.sockets, self.evidence = directory / "sockets", directory / "evidence"
        self.sockets.mkdir()
        script = directory / "job.py"
        script.write_text(SCRIPT)
        places = ["--sockets", str(self.sockets), "--to", str(self.evidence)]
        limits = ["--stall-after-s", "1", "--linger-s", "0.2"]
        self.collector = subprocess.Popen([sys.executable, "-m", "hangdrill.collector", *places, *limits])
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.job = subprocess.Popen([*torchrun, str(script), str(self.sockets), str(stalled)], **quiet)

    def events(self, name):
        path = self.evidence / "events.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        events = [msgspec.json.decode(line, type=CollectorEvent) for line in lines]
        return [event for event in events if event.event.value == name]

    def await_events(self, name, number=1):
        found = Waiter().until(lambda: len(self.events(name)) >= number or None, deadline_s=DEADLINE_S)
        assert found, f"no {number} events {name}"

    def end(self):
        """The exit codes of job and collector, which ends by itself, and the manifest."""
        codes = self.job.wait(DEADLINE_S), self.collector.wait(DEADLINE_S)
        return *codes, msgspec.json.decode((self.evidence / "manifest.json").read_bytes(), type=Manifest)


@pytest.fixture
def start(tmp_path):
    started = []

    def run(stalled):
        started.append(Run(tmp_path, stalled))
        return started[0]

    yield run
    for process in (process for run in started for process in (run.job, run.collector)):
        if process.poll() is None:
            process.terminate()
            process.wait(DEADLINE_S)


@pytest.mark.parametrize("stalled", [0, 1])
def test_a_stalled_job_of_the_users_own_leaves_the_evidence_of_both_ranks(start, stalled):
    run = start(stalled)
    run.await_events("complete")
    run.job.terminate()
    _, code, manifest = run.end()
    assert (code, manifest.complete, len(run.events("noticed"))) == (0, True, 1)
    assert manifest.notice.startswith("all_reduce #4 of default_pg pending for ")
    assert manifest.notice.endswith(f" on rank {1 - stalled}")
    assert [pull.state for pull in manifest.ranks] == [RankState.RUNNING] * 2, "as they were when they were pulled from"
    found = {(artifact.rank, artifact.kind.value): artifact for artifact in manifest.artifacts}
    assert set(found) == {(rank, kind) for rank in range(2) for kind in ("trace", "stacks", "process")}
    assert {artifact.reason for artifact in manifest.artifacts} == {PullReason.STALL}
    histories = {}
    for rank in range(2):
        body = (run.evidence / found[rank, ArtifactKind.TRACE.value].path).read_bytes()
        histories[rank] = [(op.sequence, op.retired) for op in parse_dump(body, rank=rank).operations]
    done = [(1, True), (2, True), (3, True)]
    assert histories == {stalled: done, 1 - stalled: [*done, (4, False)]}, "gloo's trace holds the history too"
    assert "job.py" in Path(run.evidence / found[stalled, "stacks"].path).read_text()


def test_a_healthy_job_leaves_no_evidence_and_no_notice(start):
    run = start(-1)
    run.await_events("rank", 2)
    (run.sockets / "go").touch()
    job_code, code, manifest = run.end()
    assert (job_code, code) == (0, 0)
    assert (manifest.noticed_ns, manifest.notice, manifest.artifacts) == (None, "", ())
    assert {pull.rank for pull in manifest.ranks} == {0, 1}
