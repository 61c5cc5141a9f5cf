"""What the ranks of a canary job left: read back from its directory, as one frozen value. Judges nothing.

`hangdrill.rank.canary` writes one file a rank and attempt. A rank that left none is missing, one whose file does not
parse is told with the reason, so that a measure is never taken from some of the ranks without saying so.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

__all__ = ["CanaryRun", "RankRecord", "SwitchFacts", "read_run"]


AT_THE_END = ("", "recover")
"""What a rank was doing that has got to its end: in its first attempt it is killed in the last part."""


class SwitchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """TORCH_DIST_USE_NCCL2 in one rank; None: not set. at_exec: as the process was started; at_import: when torch was
    imported; at_group: right before the process group was made."""

    at_exec: str | None = None
    at_import: str | None = None
    at_group: str | None = None


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank said of itself. creators: backend name -> the function that torch would make a group of it with,
    asked before the group was made. backend_class: of the group that was made; empty when none was. cores: that the
    rank kept to; empty when it was not pinned."""

    host: str = ""
    pid: int = 0
    local_rank: int = 0
    cores: tuple[int, ...] = ()
    python: str = ""
    torch: str = ""
    cuda: str | None = None
    nccl_loaded: str | None = None
    gpus: int = 0
    backend_requested: str = ""
    backend_class: str = ""
    bind: str = ""
    device: str = ""
    bound_device: str = ""
    switch: SwitchFacts = SwitchFacts()
    creators: dict[str, str] = msgspec.field(default_factory=dict)
    mesh: tuple[int, ...] = ()
    foreign: str = ""
    foreign_device: str = ""
    foreign_error: str = ""
    several: str = ""
    several_devices: tuple[str, ...] = ()
    several_error: str = ""


class RankRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's file. measures: name -> number, the unit is the name's last word (s, bytes). failed: part -> why.
    doing: the part that was running when the file was written last; empty after the end of one."""

    schema: Literal["hangdrill.canary/1"] = "hangdrill.canary/1"
    rank: int
    world_size: int
    attempt: int = 0
    doing: str = ""
    measures: dict[str, float] = msgspec.field(default_factory=dict)
    facts: RankFacts = RankFacts()
    failed: dict[str, str] = msgspec.field(default_factory=dict)
    times_ns: dict[str, int] = msgspec.field(default_factory=dict)


class CanaryRun(msgspec.Struct, frozen=True, kw_only=True):
    """One job. exit_code None: it had to be ended. launched_ns, ended_ns: by the clock that the ranks use."""

    world_size: int
    ranks: tuple[RankRecord, ...] = ()
    unreadable: tuple[str, ...] = ()
    exit_code: int | None = None
    launched_ns: int = 0
    ended_ns: int = 0
    wall_s: float = 0.0
    last_line: str = ""

    def of_attempt(self, attempt: int = 0) -> dict[int, RankRecord]:
        """The records of one attempt, by rank."""
        return {record.rank: record for record in self.ranks if record.attempt == attempt}

    def missing(self, attempt: int = 0) -> tuple[int, ...]:
        """The ranks that left no record in that attempt."""
        return tuple(sorted(set(range(self.world_size)) - self.of_attempt(attempt).keys()))

    def slowest(self, measure: str, attempt: int = 0) -> float | None:
        """The largest value over all ranks that take part in it; None when a rank might have it that left nothing, or
        that has not got to its end."""
        if self.missing(attempt):
            return None
        records = self.of_attempt(attempt).values()
        found = [one.measures[measure] for one in records if measure in one.measures]
        cut = any(measure not in one.measures and (one.failed or one.doing not in AT_THE_END) for one in records)
        return None if cut else max(found, default=None)

    def trouble(self, parts: Sequence[str] = ()) -> str:
        """What went wrong, in a sentence; empty when nothing did. parts: whose failure is asked for, if one failed."""
        if self.unreadable:
            return self.unreadable[0]
        if self.missing():
            silent = "no output" if self.exit_code is None else f"no output, exit code {self.exit_code}"
            late = ", and the job was not over in time" if self.exit_code is None else ""
            return f"ranks {_listed(self.missing())} left no record{late}: {self.last_line or silent}"
        failures = [(record.rank, part, why) for record in self.ranks for part, why in record.failed.items()]
        if failures:
            rank, part, why = min(failures, key=lambda failure: failure[1] not in parts)
            return f"rank {rank}, {part}: {why}"
        if self.exit_code is None:
            doing = sorted({record.doing for record in self.ranks if record.doing})
            return f"the job was not over in time{f', in {_listed(doing)}' if doing else ''}"
        return f"the job ended with {self.exit_code}: {self.last_line or 'no output'}" if self.exit_code else ""


def read_run(directory: Path, *, world_size: int) -> tuple[tuple[RankRecord, ...], tuple[str, ...]]:
    """The records by attempt and rank, and why others could not be read."""
    records, problems = [], []
    for path in sorted(directory.glob("rank_*.*.json")):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=RankRecord)
        except (OSError, msgspec.DecodeError) as error:
            problems.append(f"{path.name}: {error}")
            continue
        if record.world_size != world_size or not 0 <= record.rank < world_size:
            problems.append(f"{path.name}: rank {record.rank} of {record.world_size}, and the job has {world_size}")
            continue
        records.append(record)
    return tuple(sorted(records, key=lambda record: (record.attempt, record.rank))), tuple(problems)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
