"""A command and all processes it starts: wall and CPU time; or, in a run of its own, as looking costs time, memory."""

import ctypes
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

__all__ = ["Usage", "become_reaper", "measure"]

SAMPLE_S = 0.05
ORPHANS_DEADLINE_S = 10.0
PR_SET_CHILD_SUBREAPER = 36


class Usage(NamedTuple):
    """What a command took. CPU time is of the whole tree; memory is the sum of PSS: shared pages count once."""

    exit_code: int
    stdout: str
    stderr: str
    wall_s: float
    cpu_s: float
    largest_process_bytes: int
    samples: tuple[tuple[float, int], ...]  # time.monotonic() and bytes

    def peak_bytes(self, *, since_s: float = float("-inf"), until_s: float = float("inf")) -> int:
        return max((size for at, size in self.samples if since_s <= at <= until_s), default=0)


def become_reaper() -> None:
    """Whoever is orphaned below becomes a child of this process, so that its CPU time counts: a fork server is."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def measure(command: Sequence[str], *, memory: bool = False, deadline_s: float = 3600.0) -> Usage:
    """Run the command to its end, or to the deadline: then it is killed, and its exit code -9."""
    ours = {process.pid for process in psutil.Process().children()}
    before_s = children_cpu_s()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        began_s = time.monotonic()
        child = subprocess.Popen(command, stdout=out, stderr=errors, stdin=subprocess.DEVNULL)
        samples = watch(child.pid, began_s + deadline_s, memory=memory)
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.monotonic() - began_s
        child.returncode = os.waitstatus_to_exitcode(status)
        reap_orphans(ours)
        out.seek(0)
        errors.seek(0)
        return Usage(
            exit_code=child.returncode,
            stdout=out.read().decode(),
            stderr=errors.read().decode(errors="replace"),
            wall_s=wall_s,
            cpu_s=children_cpu_s() - before_s,
            largest_process_bytes=used.ru_maxrss * 1024,
            samples=tuple(samples),
        )


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def watch(pid: int, until_s: float, *, memory: bool) -> list[tuple[float, int]]:
    """Until that process ends or its time is up: the memory of its tree, if wanted, again and again."""
    samples = []
    descriptor = os.pidfd_open(pid)
    try:
        while (left_s := until_s - time.monotonic()) > 0:
            if select.select([descriptor], [], [], min(SAMPLE_S, left_s) if memory else left_s)[0]:
                return samples
            if memory:
                samples.append((time.monotonic(), tree_bytes(pid)))
    finally:
        os.close(descriptor)
    main = psutil.Process(pid)
    for process in (*main.children(recursive=True), main):
        process.kill()
    return samples


def tree_bytes(pid: int) -> int:
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return 0
    return sum(pss_bytes(one) for one in (pid, *(process.pid for process in below)))


def pss_bytes(pid: int) -> int:
    """The proportional share of one process; 0 once it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


def reap_orphans(ours: set[int]) -> None:
    """Wait for what the command left running, except children that were there before; kill what does not end."""
    left = [process for process in psutil.Process().children() if process.pid not in ours]
    _, alive = psutil.wait_procs(left, timeout=ORPHANS_DEADLINE_S)
    for process in alive:
        print(f"still running after the command, killed: {process}", file=sys.stderr)
        process.kill()
    psutil.wait_procs(alive, timeout=ORPHANS_DEADLINE_S)
