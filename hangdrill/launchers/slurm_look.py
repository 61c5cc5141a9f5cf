"""Run on every node by a small job of its own, when a drill's job is over: what is there of its files and processes?

    python slurm_look.py TO RUN_ID PREFIX

Copies each file that is called PREFIX and a rank into TO/<this node>/, ends what is left there of the run, removes the
directories of its node processes, and prints one line of JSON. Standard library only, so that it starts fast.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

END_S = 10.0


def main(to: str, run_id: str, prefix: str) -> None:
    """Look, and tell."""
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    files = copy(Path(to) / node, prefix)
    ended = end_processes(run_id)
    remove_places(run_id)
    print(json.dumps({"node": node, "files": files, "ended": ended}), flush=True)


def copy(to: Path, prefix: str) -> list[str]:
    """The names of the files that are there."""
    directory, _, start = prefix.rpartition("/")
    found = []
    for path in sorted(Path(directory or "/").glob(f"{start}*")) if prefix else ():
        if path.name.removeprefix(start).isdecimal() and path.is_file():
            to.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copy2(path, to / path.name)
            found.append(path.name)
    return found


def end_processes(run_id: str) -> list[str]:
    """SIGKILL to every process that bears the run's id, until none is left; what they were."""
    ended: dict[int, str] = {}
    deadline_s = time.monotonic() + END_S
    while (living := processes(run_id)) and time.monotonic() < deadline_s:
        ended |= living
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return [f"{name} ({pid})" for pid, name in sorted(ended.items())]


def processes(run_id: str) -> dict[int, str]:
    """Not this one, not its ancestors, and no zombies."""
    mark = f"HANGDRILL_RUN_ID={run_id}".encode()
    found: dict[int, str] = {}
    for directory in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if directory.name.isdigit() and mark in (directory / "environ").read_bytes().split(b"\0"):
                text = (directory / "stat").read_text(errors="replace")
                if text.rpartition(")")[2].split()[0] not in ("Z", "X"):
                    found[int(directory.name)] = text.partition("(")[2].rpartition(")")[0]
    return found


def remove_places(run_id: str) -> None:
    """What a node process makes in the host's temporary directory, and removes if it is not killed."""
    for orders in Path(tempfile.gettempdir()).glob("hangdrill-*/control/agent.json"):
        with contextlib.suppress(OSError, ValueError):
            if json.loads(orders.read_text())["run_id"] == run_id:
                shutil.rmtree(orders.parents[1])


if __name__ == "__main__":
    main(*sys.argv[1:4])
