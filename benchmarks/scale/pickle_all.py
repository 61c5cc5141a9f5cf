"""`pickle_all.py [--no-gc] DIRECTORY`: the least a reader does. pickle.load of each file, on all cores, then let it go.

Never do this with files from a cluster; these are our own. The processes start as hangdrill's do, from a fork server.
`--no-gc`: with Python's cyclic garbage collector off.
"""

import gc
import multiprocessing
import os
import pickle
import sys
from pathlib import Path


def load(path: str) -> int:
    """The entries of one file."""
    with open(path, "rb") as file:  # noqa: PTH123 - the least
        return len(pickle.load(file)["entries"])


def main() -> None:
    *options, directory = sys.argv[1:]
    paths = [str(path) for path in sorted(Path(directory).iterdir())]
    context = multiprocessing.get_context("forkserver")
    cores = len(os.sched_getaffinity(0))
    with context.Pool(cores, initializer=gc.disable if "--no-gc" in options else None) as pool:
        print(sum(pool.imap_unordered(load, paths, chunksize=8)), "entries")


if __name__ == "__main__":
    main()
