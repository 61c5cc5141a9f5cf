"""A skipped operation is in no dump, also where the recorder is a hook of the group (nccl2, out-of-tree backends)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torchrun

CHILD = """
import json, os, pickle, sys
import torch, torch.distributed as dist
import torch._C._distributed_c10d as c10d
from hangdrill.rank.changes import Change

class Fancy(c10d.Backend):
    def getBackendName(self):
        return "fancy"
    def allreduce(self, tensors, options):
        done = torch.futures.Future()
        done.set_result(tensors)
        return c10d._create_work_from_future(done)

kept = []
def make(options, more=None):
    kept.append(Fancy(options.group_rank, options.group_size))
    return kept[-1]

dist.Backend.register_backend("fancy", make, extended_api=True, devices=["cpu"])
dist.init_process_group("fancy", store=dist.HashStore(), rank=0, world_size=1)
pg, change, left = dist.group.WORLD, Change(sys.argv[1]), 2

def before(operation):
    global left
    left -= 1
    if left == 0:
        change.check(operation, "all_reduce", pg)
        change.apply(operation, "all_reduce", pg)

pg.register_pre_hook(7, before)
for is_async in (False, True, False):
    work = dist.all_reduce(torch.ones(2), async_op=True)
    work.wait()
entries = pickle.loads(c10d._dump_fr_trace(True, False, False, "fancy"))["entries"]
print(json.dumps([entry["collective_seq_id"] for entry in entries]), flush=True)
os._exit(0)
"""


def recorded(kind: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, kind],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_recorder_never_sees_the_operation_that_is_left_out() -> None:
    assert recorded("skip") == [1, 2]


def test_a_changed_operation_is_recorded() -> None:
    assert recorded("wrong-shape") == [1, 2, 3]
