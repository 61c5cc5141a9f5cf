"""Where ranks wait for one another outside any process group and any store of torch: files that all of them see.

torchrun's own store is no such place: with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, without which a restarted job may meet
the addresses of its dead ranks there (pytorch 135712), the ranks have none before the process group is made.
"""

from pathlib import Path

from hangdrill.rank.files import wait_until

__all__ = ["Meeting"]

LIMIT_S = 120.0
"""Ranks import torch at different speeds; what is timed after a meeting begins on all of them together."""
POLL_S = 0.0005


class Meeting:
    """The meetings of one attempt of one job."""

    def __init__(self, out: Path, *, rank: int, world_size: int, attempt: int) -> None:
        self._directory = out / f"meetings.{attempt}"
        self._rank, self._world_size = rank, world_size

    def __call__(self, name: str) -> None:
        """Return once every rank of this attempt has come; each name is used once. RuntimeError after LIMIT_S."""
        self._directory.mkdir(exist_ok=True)
        (self._directory / f"{name}.{self._rank}").touch()
        missing = set(range(self._world_size))

        def all_here() -> bool:
            missing.difference_update([rank for rank in missing if (self._directory / f"{name}.{rank}").exists()])
            return not missing

        if not wait_until(all_here, limit_s=LIMIT_S, poll_s=POLL_S):
            raise RuntimeError(f"ranks {sorted(missing)} did not come to {name!r} within {LIMIT_S:g} s")
