"""Whether this machine has the GPUs that a drill's ranks need, seen without torch and before anything is started.

Only what is plainly missing is refused: AMD's and Intel's devices are noticed but not counted.
"""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hangdrill.model.errors import MachineError
from hangdrill.model.scenario import Scenario

__all__ = ["check_gpus", "missing_gpus", "needs_gpus", "spread"]

NVIDIA = re.compile(r"nvidia\d+")
VISIBLE = "CUDA_VISIBLE_DEVICES"
OTHERS = ("kfd", "dri", "dxg")
LIST_DEADLINE_S = 20.0


def needs_gpus(scenario: Scenario) -> bool:
    """Whether the backend moves GPU memory. An out-of-tree backend may; that is for it to say."""
    return "nccl" in scenario.job.backend


def missing_gpus(scenario: Scenario, environ: Mapping[str, str], *, devices: Path = Path("/dev")) -> str:
    """What is missing, in a sentence; "" when nothing is, or when nobody can tell."""
    if not needs_gpus(scenario):
        return ""
    if _has_others(devices):
        return ""
    count = len(_visible({**environ, **scenario.job.env}, devices))
    if count >= scenario.job.nproc_per_node:
        return ""
    return f"{scenario.job.backend} needs {scenario.job.nproc_per_node} GPUs, one a rank, and {count} are visible"


def check_gpus(scenario: Scenario, environ: Mapping[str, str]) -> None:
    """MachineError when they are missing."""
    why = missing_gpus(scenario, environ)
    if why:
        raise MachineError(why, next_step="run it where there are GPUs, or lower job.nproc_per_node")


def spread(
    scenario: Scenario, environ: Mapping[str, str], number: int, *, devices: Path = Path("/dev")
) -> Mapping[str, str]:
    """The environment in which drill `number` of many begins at another GPU than the one before: a rank that waits in
    an operation keeps its GPU busy, and drills side by side would all wait on the first one."""
    if not needs_gpus(scenario) or VISIBLE in scenario.job.env or _has_others(devices):
        return environ
    names = _visible(environ, devices)
    first = number % len(names) if names else 0
    return {**environ, VISIBLE: ",".join([*names[first:], *names[:first]])} if names else environ


def _has_others(devices: Path) -> bool:
    return any((devices / name).exists() for name in OTHERS)


def _visible(environ: Mapping[str, str], devices: Path) -> list[str]:
    """The NVIDIA devices that a job may use, as CUDA_VISIBLE_DEVICES names them."""
    names = (path.name for path in devices.iterdir()) if devices.is_dir() else ()
    count = sum(bool(NVIDIA.fullmatch(name)) for name in names) or _listed(environ)
    chosen = environ.get(VISIBLE)
    if chosen is None:
        return [str(index) for index in range(count)]
    return [part.strip() for part in chosen.split(",") if part.strip()][:count]


def _listed(environ: Mapping[str, str]) -> int:
    """What `nvidia-smi -L` names, where the devices are not under /dev."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=LIST_DEADLINE_S, check=True, env=dict(environ)
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())
