"""Look at this host without root: who may trace whom, where it runs. Reads files, and changes nothing."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from hangdrill.preflight.limits import clock_is_synchronised, memory_limit_bytes
from hangdrill.preflight.surroundings import Machine

__all__ = ["look_at_machine"]

CAP_SYS_PTRACE = 19


def look_at_machine(
    environ: Mapping[str, str], root: Path = Path("/"), interpreter: Path = Path(sys.executable)
) -> Machine:
    """The facts. root: where /proc and the marks of container engines are looked for."""
    beside = interpreter.parent / "py-spy"
    in_kubernetes = "KUBERNETES_SERVICE_HOST" in environ
    marks = (root / ".dockerenv", root / "run/.containerenv")
    return Machine(
        ptrace_scope=_ptrace_scope(root / "proc/sys/kernel/yama/ptrace_scope"),
        can_trace=_can_trace(root / "proc/self/status"),
        py_spy=str(beside) if beside.is_file() else shutil.which("py-spy", path=environ.get("PATH", os.defpath)),
        in_container=in_kubernetes or any(mark.exists() for mark in marks),
        in_kubernetes=in_kubernetes,
        in_slurm="SLURM_JOB_ID" in environ,
        clock_synchronised=clock_is_synchronised(),
        memory_limit_bytes=memory_limit_bytes(root),
    )


def _ptrace_scope(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _can_trace(path: Path) -> bool | None:
    try:
        lines = path.read_text().splitlines()
        return next(
            bool(int(line.split()[1], 16) >> CAP_SYS_PTRACE & 1) for line in lines if line.startswith("CapEff:")
        )
    except (OSError, ValueError, IndexError, StopIteration):
        return None
