"""A training script that writes its own dumps on gloo, which never dumps, as torch does with NCCL, for the controls.

As torch: in place, to TORCH_FR_DUMP_TEMP_FILE with the rank behind it (without, if TORCH_FR_DUMP_DYNAMIC_FILE_NAME is
set), no directory is made, and an error is one line in the log. What else goes wrong is an option, each for --rank:

--last         it writes its dump once the others' are whole
--cut          SIGKILL ends the rank when most of its dump is written, once the others' are whole
--old SECONDS  it writes no dump; a file of an earlier job lies there, so many seconds old
--mute         it writes no dump: what lies there is what lay there before
--another-job  when the rank has written its dump, the same rank of another job, on another host, writes its own over it
"""

import argparse
import os
import pickle
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

STEPS, QUIET_S, POLL_S, PATIENCE_S = 60, 1.0, 0.05, 60.0
OTHER_JOB_LATER_NS = 5 * 10**9


class Progress:
    """When the last step ended."""

    def __init__(self) -> None:
        self.last_s = time.monotonic()

    def step(self) -> None:
        self.last_s = time.monotonic()

    def wait_until_quiet(self) -> None:
        while time.monotonic() - self.last_s < QUIET_S:
            time.sleep(POLL_S)


def path_of(rank: int) -> Path:
    """Where torch would write."""
    prefix = os.environ["TORCH_FR_DUMP_TEMP_FILE"]
    return Path(prefix if os.environ.get("TORCH_FR_DUMP_DYNAMIC_FILE_NAME") == "1" else f"{prefix}{rank}")


def watch(progress: Progress, options: argparse.Namespace, rank: int) -> None:
    """Wait until nothing goes on, and dump once."""
    progress.wait_until_quiet()
    data = _dump_fr_trace(True, False, False, "gloo")
    if rank == options.rank and (options.cut or options.last):
        wait_for_the_others(rank)
    try:
        if rank != options.rank or not (options.cut or options.old or options.another_job or options.mute):
            path_of(rank).write_bytes(data)
        elif options.mute:
            return
        elif options.cut:
            cut(data, rank)
        elif options.old:
            path_of(rank).write_bytes(moved(data, -options.old * 10**9))
        else:
            path_of(rank).write_bytes(data)
            path_of(rank).write_bytes(moved(data, OTHER_JOB_LATER_NS))
    except OSError as error:
        print(f"rank {rank}: the dump was not written: {error}", file=sys.stderr)


def cut(data: bytes, rank: int) -> None:
    """Write three quarters, and be killed."""
    with path_of(rank).open("wb") as file:
        file.write(data[: len(data) * 3 // 4])
        file.flush()
        os.fsync(file.fileno())
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_the_others(rank: int) -> None:
    """Until the dumps of all other ranks are whole."""
    others = [path_of(other) for other in range(dist.get_world_size()) if other != rank]
    since_s = time.monotonic()
    while not all(is_whole(path) for path in others) and time.monotonic() - since_s < PATIENCE_S:
        time.sleep(POLL_S)


def is_whole(path: Path) -> bool:
    """A pickle ends with a full stop, and only there is it whole."""
    try:
        pickle.loads(path.read_bytes())
    except Exception:  # what is half there may raise anything
        return False
    return True


def moved(data: bytes, by_ns: int) -> bytes:
    """The same history at another time: all that tells an earlier run's dump, or another job's."""
    history = pickle.loads(data)
    for entry in history["entries"]:
        entry["time_created_ns"] += by_ns
    return pickle.dumps(history)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--timeout-s", type=float, default=5.0)
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--last", action="store_true")
    parser.add_argument("--cut", action="store_true")
    parser.add_argument("--old", type=int, default=0, metavar="SECONDS")
    parser.add_argument("--mute", action="store_true")
    parser.add_argument("--another-job", action="store_true")
    options = parser.parse_args()
    os.umask(0o077)
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.timeout_s))
    progress = Progress()
    threading.Thread(target=watch, args=(progress, options, dist.get_rank()), daemon=True).start()
    for _ in range(STEPS):
        dist.all_reduce(torch.ones(1000))
        progress.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
