"""The static look at the plan's script: what the new backend would refuse, named with its line."""

import pytest
from certify_contexts import context_of

from hangdrill.certify.binding import script_line
from hangdrill.certify.cells import Claim
from hangdrill.model.receipt import Item
from hangdrill.model.verdict import Verdict

CLAIM = Claim(id="binding/script", item=Item.BINDING, claim="c")
GOOD = """
import os, torch, torch.distributed as dist
local = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl", device_id=torch.device("cuda", local))
"""
BAD = {
    "no device_id": 'import torch.distributed as dist\ndist.init_process_group("nccl")\n',
    "every rank names GPU 0": GOOD + "torch.cuda.set_device(0)\n",
    "several GPUs": GOOD + 'a = torch.zeros(1, device="cuda:0")\nb = torch.zeros(1, device="cuda:1")\n',
    "isinstance": GOOD + "assert isinstance(dist.group.WORLD, dist.ProcessGroupNCCL)\n",
}


@pytest.mark.parametrize("said", BAD)
def test_what_the_new_backend_would_trip_over_is_named(tmp_path, said):
    script = tmp_path / "train.py"
    script.write_text(BAD[said])
    line = script_line(CLAIM, context_of(tmp_path, backend="nccl", script=script, torch="2.15.0"))
    assert line.verdict is Verdict.FAIL
    assert said in line.detail
    assert "train.py:" in line.detail
    assert line.mend


def test_a_script_that_binds_its_ranks_passes(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(GOOD)
    context = context_of(tmp_path, backend="nccl", script=script, torch="2.15.0", gpus=2)
    assert script_line(CLAIM, context).verdict is Verdict.PASS


def test_a_script_that_is_no_python_is_unknown(tmp_path):
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\nexec torchrun train.py\n")
    assert script_line(CLAIM, context_of(tmp_path, backend="nccl", script=script)).verdict is Verdict.UNKNOWN
