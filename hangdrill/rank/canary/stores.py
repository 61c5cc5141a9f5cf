"""torch's store of this attempt, made once, and a meeting of the ranks in it: for ranks of several nodes."""

import functools
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from hangdrill.rank.canary.meeting import LIMIT_S

__all__ = ["StoreMeeting", "base_store"]


@functools.cache
def base_store(timeout_s: float) -> Any:
    """As init_process_group makes it. Rank 0 listens, at the address and port that torchrun has told all ranks."""
    store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=timeout_s)))
    store.set_timeout(timedelta(seconds=timeout_s))
    return store


class StoreMeeting:
    """The meetings of one attempt of one job; the store is new for each attempt."""

    def __init__(self, *, world_size: int, timeout_s: float) -> None:
        self._world_size, self._timeout_s = world_size, timeout_s

    def __call__(self, name: str) -> None:
        """Return once every rank has come; each name is used once. RuntimeError after LIMIT_S."""
        store = dist.PrefixStore("meetings", base_store(self._timeout_s))
        if store.add(f"{name}.came", 1) == self._world_size:
            store.set(f"{name}.all", "1")
        try:
            store.wait([f"{name}.all"], timedelta(seconds=LIMIT_S))
        except RuntimeError as error:
            came = store.add(f"{name}.came", 0)
            what = f"{came} of {self._world_size} ranks came to {name!r} within {LIMIT_S:g} s"
            raise RuntimeError(what) from error
