"""Whether this machine has the GPUs that a drill's ranks need, seen without torch and before anything is started.

Only what is plainly missing is refused: AMD's and Intel's devices are noticed but not counted.
"""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hangdrill.model.errors import MachineError
from hangdrill.model.scenario import Scenario

__all__ = ["check_gpus", "missing_gpus", "needs_gpus"]

NVIDIA = re.compile(r"nvidia\d+")
OTHERS = ("kfd", "dri", "dxg")
LIST_DEADLINE_S = 20.0


def needs_gpus(scenario: Scenario) -> bool:
    """Whether the backend moves GPU memory. An out-of-tree backend may; that is for it to say."""
    return "nccl" in scenario.job.backend


def missing_gpus(scenario: Scenario, environ: Mapping[str, str], *, devices: Path = Path("/dev")) -> str:
    """What is missing, in a sentence; "" when nothing is, or when nobody can tell."""
    if not needs_gpus(scenario):
        return ""
    names = {path.name for path in devices.iterdir()} if devices.is_dir() else set()
    if names & set(OTHERS):
        return ""
    count = sum(bool(NVIDIA.fullmatch(name)) for name in names) or _listed(environ)
    visible = {**environ, **scenario.job.env}.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        count = min(count, len([part for part in visible.split(",") if part.strip()]))
    if count >= scenario.job.nproc_per_node:
        return ""
    return f"{scenario.job.backend} needs {scenario.job.nproc_per_node} GPUs, one a rank, and {count} are visible"


def check_gpus(scenario: Scenario, environ: Mapping[str, str]) -> None:
    """MachineError when they are missing."""
    why = missing_gpus(scenario, environ)
    if why:
        raise MachineError(why, next_step="run it where there are GPUs, or lower job.nproc_per_node")


def _listed(environ: Mapping[str, str]) -> int:
    """What `nvidia-smi -L` names, where the devices are not under /dev."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=LIST_DEADLINE_S, check=True, env=dict(environ)
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())
