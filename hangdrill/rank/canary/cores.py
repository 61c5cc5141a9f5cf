"""Each rank on cores of its own, so that ranks of one host do not push each other about while they are timed."""

import os
from collections.abc import Mapping

__all__ = ["keep_to_own_cores", "own_cores"]

FEWEST_CORES = 2
"""A rank has threads beside its own, of torch and of the backend: on one core alone they would stand in its way."""


def own_cores(available: set[int], local_rank: int, local_ranks: int) -> tuple[int, ...]:
    """This rank's block of neighbouring cores; empty when there are too few for every rank to have some."""
    each = len(available) // max(1, local_ranks)
    if each < FEWEST_CORES or not 0 <= local_rank < local_ranks:
        return ()
    return tuple(sorted(available)[local_rank * each : (local_rank + 1) * each])


def keep_to_own_cores(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Pin this process, before torch starts threads. Empty when it was not done: too few cores, or not allowed."""
    try:
        available = os.sched_getaffinity(0)
        cores = own_cores(available, int(environ.get("LOCAL_RANK", "0")), int(environ.get("LOCAL_WORLD_SIZE", "1")))
        if cores:
            os.sched_setaffinity(0, cores)
    except (AttributeError, OSError, ValueError):
        return ()
    return cores
