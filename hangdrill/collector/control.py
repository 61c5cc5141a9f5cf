"""The control directory: what agents and the controller wrote there, and the acks that the collector writes."""

import os
import re
from pathlib import Path
from typing import TypeVar

import msgspec

from hangdrill.collector.clocks import SAME_NS, ahead_of_this_clock_ns
from hangdrill.collector.operations_file import OperationsFile
from hangdrill.model.run import AgentFacts, RankExit

__all__ = ["ControlDirectory", "RankKey"]

_RANK_FILE = re.compile(r"rank_(\d{1,7})\.a(\d{1,5})\.(sock|facts\.json|exit\.json|ops)\Z")
_T = TypeVar("_T")


class RankKey(msgspec.Struct, frozen=True, order=True):
    """One life of one rank: its global rank, and the attempt (torchrun's restart count)."""

    attempt: int
    rank: int

    @property
    def stem(self) -> str:
        """`rank_3.a0`, with which every file of this rank begins."""
        return f"rank_{self.rank}.a{self.attempt}"


def list_rank_files(directory: Path) -> dict[RankKey, set[str]]:
    """For every rank in a directory, the kinds of files it has there. A directory that is gone has none."""
    found: dict[RankKey, set[str]] = {}
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names alone, at every look
    except OSError:
        return found
    for name in names:
        if match := _RANK_FILE.match(name):
            found.setdefault(RankKey(int(match[2]), int(match[1])), set()).add(match[3])
    return found


class _AgentOrders(msgspec.Struct, frozen=True):
    timeout_s: float | None = None
    backend: str = ""
    run_id: str = ""


class ControlDirectory:
    """Reads by polling. A file that is missing or not yet whole reads as None: the next look finds it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ranks(self) -> dict[RankKey, set[str]]:
        """Which rank has which files."""
        return list_rank_files(self.path)

    def facts(self, key: RankKey) -> AgentFacts | None:
        """What the agent said of itself."""
        return self._read(f"{key.stem}.facts.json", AgentFacts)

    def clock_ahead_ns(self, key: RankKey) -> int:
        """By how much the rank's clock is ahead of this process's; 0 when they are the same, or nothing tells."""
        ahead_ns = ahead_of_this_clock_ns(self.path / f"{key.stem}.facts.json")
        return 0 if ahead_ns is None or abs(ahead_ns) < SAME_NS else ahead_ns

    def exit(self, key: RankKey) -> RankExit | None:
        """How the program ended, when it has."""
        return self._read(f"{key.stem}.exit.json", RankExit)

    def operations(self, key: RankKey) -> OperationsFile | None:
        """The agent's own count of operations."""
        try:
            return OperationsFile(self.path / f"{key.stem}.ops")
        except (OSError, ValueError):
            return None

    def job_timeout_s(self) -> float | None:
        """The process groups' timeout, as the controller ordered it."""
        orders = self._read("agent.json", _AgentOrders)
        return None if orders is None else orders.timeout_s

    def asked_ns(self) -> int | None:
        """When the controller last asked to collect now; None when it did not."""
        try:
            return (self.path / "collect_now").stat().st_mtime_ns
        except OSError:
            return None

    def torn_down(self) -> bool:
        """Whether the controller is ending the job on purpose."""
        return (self.path / "teardown").exists()

    def acked(self, key: RankKey) -> bool:
        """Whether the rank's ack is there."""
        return (self.path / f"{key.stem}.ack").exists()

    def ack(self, key: RankKey) -> bool:
        """Let the rank's process go. An empty file needs no temporary name: it exists or it does not.

        False when it could not be written (a full disk, a directory that is gone): the agent's own limit then counts.
        """
        try:
            (self.path / f"{key.stem}.ack").touch(mode=0o600)
        except OSError:
            return False
        return True

    def _read(self, name: str, shape: type[_T]) -> _T | None:
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=shape)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
