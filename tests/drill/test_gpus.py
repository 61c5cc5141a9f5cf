"""A drill that needs GPUs is refused where they are plainly missing, and nowhere else."""

from pathlib import Path

import pytest
from fake_job import scenario

from hangdrill.drill.gpus import check_gpus, missing_gpus, spread
from hangdrill.model.errors import ExitCode, MachineError

NCCL = {"job": {"backend": "nccl", "nproc_per_node": 2}}
NOWHERE = {"PATH": "/nonexistent"}


def devices(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).touch()
    return folder


def test_two_gpus_are_enough_for_two_ranks(tmp_path):
    assert missing_gpus(scenario(**NCCL), NOWHERE, devices=devices(tmp_path, "nvidia0", "nvidia1", "nvidiactl")) == ""


def test_one_gpu_is_too_few_for_two_ranks(tmp_path):
    why = missing_gpus(scenario(**NCCL), NOWHERE, devices=devices(tmp_path, "nvidia0", "nvidiactl"))
    assert why == "nccl needs 2 GPUs, one a rank, and 1 are visible"


def test_gpus_that_are_hidden_do_not_count(tmp_path):
    found = devices(tmp_path, "nvidia0", "nvidia1")
    assert missing_gpus(scenario(**NCCL), {**NOWHERE, "CUDA_VISIBLE_DEVICES": "1"}, devices=found) != ""


def test_devices_of_other_vendors_are_left_to_torch(tmp_path):
    assert missing_gpus(scenario(**NCCL), NOWHERE, devices=devices(tmp_path, "kfd")) == ""


def test_gloo_needs_none(tmp_path):
    assert missing_gpus(scenario(), NOWHERE, devices=tmp_path) == ""


def test_a_missing_gpu_is_the_machines_fault(monkeypatch):
    monkeypatch.setattr("hangdrill.drill.gpus.missing_gpus", lambda given, environ: "no GPU")
    with pytest.raises(MachineError) as caught:
        check_gpus(scenario(**NCCL), NOWHERE)
    assert caught.value.exit_code is ExitCode.MACHINE


def test_drills_side_by_side_begin_at_different_gpus(tmp_path):
    found = devices(tmp_path, "nvidia0", "nvidia1", "nvidia2")
    seen = [spread(scenario(**NCCL), NOWHERE, number, devices=found)["CUDA_VISIBLE_DEVICES"] for number in range(4)]
    assert seen == ["0,1,2", "1,2,0", "2,0,1", "0,1,2"]
    chosen = {**NOWHERE, "CUDA_VISIBLE_DEVICES": "2,0"}
    assert spread(scenario(**NCCL), chosen, 1, devices=found)["CUDA_VISIBLE_DEVICES"] == "0,2"


def test_a_choice_of_the_scenario_and_a_drill_without_gpus_are_left_alone(tmp_path):
    found = devices(tmp_path, "nvidia0", "nvidia1")
    own = scenario(job={**NCCL["job"], "env": {"CUDA_VISIBLE_DEVICES": "1,0"}})
    assert spread(own, NOWHERE, 1, devices=found) is NOWHERE
    assert spread(scenario(), NOWHERE, 1, devices=found) is NOWHERE
