"""A fault in a DataLoader: before the nth fetch of its first worker, or of the rank itself when it has no workers.

The fetchers of torch are replaced in this process, which forked workers inherit. Workers that are spawned (the default
of Python 3.14 is a fork server) start with a fresh torch, so the function they run is replaced as well, by one that
places the fault there first.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import _utils, get_worker_info

from hangdrill.rank.faults import Fault, Reached
from hangdrill.rank.files import Flags
from hangdrill.rank.orders import Identity, read_orders

__all__ = ["place_in_fetch", "run_worker"]

_run_worker = _utils.worker._worker_loop
"""torch's own, also in a process where it is replaced."""

_placed: list[Fault] = []


def place_in_fetch(fault: Fault) -> None:
    """Let the fault happen before the nth fetch."""
    _placed.append(fault)
    fetched = 0

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(self: Any, index: Any) -> Any:
            nonlocal fetched
            fetched += 1
            worker = get_worker_info()
            if fetched == fault.order.nth and (worker is None or worker.id == 0) and not fault.was_reported:
                fault.happen(Reached(op="dataloader"))
            return original(self, index)

        return fetch

    for fetcher in (_utils.fetch._MapDatasetFetcher, _utils.fetch._IterableDatasetFetcher):
        fetcher.fetch = around(fetcher.fetch)
    _utils.worker._worker_loop = run_worker


def run_worker(*arguments: Any) -> None:
    """What a DataLoader's worker runs; a spawned one finds it by this name."""
    if not _placed:
        orders, who = read_orders(Path(os.environ["HANGDRILL_AGENT"])), Identity.from_environment(os.environ)
        place_in_fetch(Fault(orders, who, Flags(orders.control, who.rank, who.stem)))
    _run_worker(*arguments)
