"""The torchrun launcher: the exact command, what it refuses before anything starts, and what the ranks can import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.agent_path import prepare_agent_path
from hangdrill.launchers.process import start_local
from hangdrill.launchers.protocol import LaunchRequest
from hangdrill.launchers.torchrun import TorchrunLauncher
from hangdrill.model.errors import MachineError


def request_for(tmp_path, **changes):
    values = {
        "run_id": "hd-0123456789ab",
        "python": sys.executable,
        "nnodes": 1,
        "nproc_per_node": 4,
        "max_restarts": 2,
        "target": "workload:ddp",
        "args": ("--steps", "12"),
        "environ": dict(os.environ),
        "cwd": str(tmp_path),
        "log_path": str(tmp_path / "job.log"),
    }
    return LaunchRequest(**{**values, **changes})


def fake_python(tmp_path, text):
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_command_is_exact(tmp_path):
    launching = (
        "--nnodes 1 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 --rdzv-id hd-0123456789ab"
        " --local-addr 127.0.0.1 --max-restarts 2"
    )
    target = "-m hangdrill.rank workload:ddp --steps 12"
    expected = f"/ranks/python -m torch.distributed.run {launching} {target}"
    assert TorchrunLauncher().command(request_for(tmp_path, python="/ranks/python")) == tuple(expected.split())


def test_python_that_does_not_exist_is_named_with_the_next_step(tmp_path):
    with pytest.raises(MachineError, match=r"/no/such/python(.|\n)*--python"):
        TorchrunLauncher().check(request_for(tmp_path, python="/no/such/python"))


def test_python_that_crashes_is_the_machines_fault(tmp_path):
    python = fake_python(tmp_path, "echo 'GLIBC_9.99 not found' >&2; exit 127")
    with pytest.raises(MachineError, match=r"GLIBC_9\.99 not found"):
        TorchrunLauncher().check(request_for(tmp_path, python=python))


def test_python_without_torch_is_refused(tmp_path):
    python = fake_python(tmp_path, """echo '{"torch": null, "torchrun": false}'""")
    with pytest.raises(MachineError, match="has no torch"):
        TorchrunLauncher().check(request_for(tmp_path, python=python))


def test_torch_without_torchrun_is_refused(tmp_path):
    python = fake_python(tmp_path, """echo 'a banner'; echo '{"torch": "/x/torch", "torchrun": false}'""")
    with pytest.raises(MachineError, match=r"without torch\.distributed\.run"):
        TorchrunLauncher().check(request_for(tmp_path, python=python))


def test_several_nodes_are_refused(tmp_path):
    python = fake_python(tmp_path, "exit 1")
    with pytest.raises(MachineError, match=r"job\.nnodes"):
        TorchrunLauncher().check(request_for(tmp_path, python=python, nnodes=2))


def test_agent_path_holds_the_rank_agent_and_nothing_else(tmp_path):
    directory = prepare_agent_path(prepare_agent_path(tmp_path / "agent"))
    assert [path.name for path in directory.iterdir()] == ["hangdrill"]
    assert sorted(path.name for path in (directory / "hangdrill").iterdir()) == ["__init__.py", "rank"]


def test_rank_agent_starts_with_nothing_but_the_agent_path(tmp_path):
    """Isolated from site-packages: as with another interpreter that has none of the controller's packages."""
    directory = prepare_agent_path(tmp_path / "agent")
    script = tmp_path / "train.py"
    script.write_text("import sys; print('ran', sys.argv[1:], 'msgspec' in sys.modules)")
    environ = {"PYTHONPATH": str(directory), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-S", "-m", "hangdrill.rank", str(script), "--steps", "3"]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "ran ['--steps', '3'] False"), done.stderr


def test_local_job_has_a_session_of_its_own_and_logs_everything(tmp_path):
    log = tmp_path / "job.log"
    code = "import os, sys; print(os.getsid(0) == os.getpid()); print('err', file=sys.stderr); sys.exit(3)"
    job = start_local([sys.executable, "-S", "-c", code], environ=os.environ, cwd=str(tmp_path), log_path=str(log))
    assert Waiter().until(job.poll, deadline_s=30.0) == 3
    job.close()
    assert sorted(log.read_text().split()) == ["True", "err"]


def test_program_that_cannot_be_started_is_the_machines_fault(tmp_path):
    with pytest.raises(MachineError, match="cannot start"):
        start_local(["/no/such/program"], environ={}, cwd=str(tmp_path), log_path=str(tmp_path / "log"))
    assert Path(tmp_path / "log").exists()
