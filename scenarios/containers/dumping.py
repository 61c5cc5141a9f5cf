"""A training script that writes its own dumps: what torch does with NCCL, done by hand for gloo, which never dumps.

A thread watches the steps. When none has ended for a while it writes the recorder's history where torch would:
TORCH_FR_DUMP_TEMP_FILE with the rank behind it.
"""

import os
import threading
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

STEPS, TIMEOUT_S, QUIET_S = 12, 6, 2


def watch(progress: threading.Event, rank: int) -> None:
    """Wait until a whole QUIET_S passes without progress, and dump once."""
    while progress.wait(QUIET_S):
        progress.clear()
    path = Path(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{rank}")
    unfinished = path.with_name(f".{path.name}")
    unfinished.touch(mode=0o600)
    unfinished.write_bytes(_dump_fr_trace(True, False, False, "gloo"))
    unfinished.rename(path)


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_S))
    progress = threading.Event()
    progress.set()
    threading.Thread(target=watch, args=(progress, dist.get_rank()), daemon=True).start()
    for _ in range(STEPS):
        dist.all_reduce(torch.ones(1000))
        progress.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
