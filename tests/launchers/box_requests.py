"""Requests for launchers whose jobs run in a container, with a run directory as a drill makes it."""

import os
import shutil
import sys
import uuid
from pathlib import Path

import pytest

from hangdrill.launchers.agent_path import prepare_agent_path
from hangdrill.launchers.protocol import LaunchRequest
from hangdrill.model.scenario import Volume

CHECKOUT = Path(__file__).parents[2]

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed")


def prepare_run(tmp_path: Path) -> Path:
    """The directories that `drill.run` makes before it launches."""
    run_dir = tmp_path / "run"
    for name in ("control", "sockets", "native", "evidence"):
        (run_dir / name).mkdir(parents=True, mode=0o700)
    prepare_agent_path(run_dir / "agent")
    return run_dir


def box_request(run_dir: Path, **changes) -> LaunchRequest:
    values = {
        "run_id": f"hd-{uuid.uuid4().hex[:12]}",
        "python": sys.executable,
        "nnodes": 1,
        "nproc_per_node": 2,
        "max_restarts": 0,
        "target": "workload:all-reduce",
        "args": (),
        "environ": {**os.environ, "PYTHONPATH": f"{run_dir}/agent:{CHECKOUT}"},
        "cwd": str(run_dir),
        "log_path": str(run_dir / "job.log"),
        "run_dir": str(run_dir),
        "dump_dir": str(run_dir / "native"),
    }
    return LaunchRequest(**{**values, **changes})


def volume(text: str) -> Volume:
    return Volume.parse(text)
