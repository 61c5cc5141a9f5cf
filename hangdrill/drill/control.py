"""Reading `control/`: what the agents say and count. Tolerant: a missing or half file is just not there."""

import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from hangdrill.collector.clocks import SAME_NS, ahead_of_this_clock_ns
from hangdrill.model.run import AgentFacts, FaultReport, RankClock, RankExit

__all__ = ["ControlReader", "OpsRecord", "RankAttempt", "SlotCount", "read_ops"]

OPS_MAGIC = 0x48444F5053000001
_HEADER = struct.Struct("<8Q")
_SLOT = struct.Struct("<8Q")
_NAME = re.compile(r"rank_(\d+)\.a(\d+)\.(facts\.json|fault\.json|exit\.json|ops)")

T = TypeVar("T")


class RankAttempt(NamedTuple):
    """A rank in one attempt of torchrun."""

    rank: int
    attempt: int


class SlotCount(NamedTuple):
    """What one rank counted in one group."""

    collectives: int
    p2p: int
    last_op: int
    last_ns: int


class OpsRecord(NamedTuple):
    """One rank's count of operations; slot i belongs to `groups[i]` of its facts."""

    steps: int
    last_slot: int
    last_ns: int
    slots: tuple[SlotCount, ...]

    @property
    def operations(self) -> int:
        """Everything counted, in all groups."""
        return sum(slot.collectives + slot.p2p for slot in self.slots)


def read_ops(path: Path) -> OpsRecord | None:
    """The counts of an ops file; None when it is not there, cut or of another version."""
    try:
        raw = path.read_bytes()
        magic, words, slots, steps, last_slot, last_ns, _, _ = _HEADER.unpack_from(raw)
    except (OSError, struct.error):
        return None
    if magic != OPS_MAGIC or words * 8 != _SLOT.size or len(raw) < _HEADER.size + slots * _SLOT.size:
        return None
    rows = _SLOT.iter_unpack(raw[_HEADER.size : _HEADER.size + slots * _SLOT.size])
    return OpsRecord(steps, last_slot, last_ns, tuple(SlotCount(*row[:4]) for row in rows))


class ControlReader:
    """Reads one control directory anew at each call."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def facts(self) -> Mapping[RankAttempt, AgentFacts]:
        """What each agent reported of itself, with the counts it had reached when they were last copied or read."""
        found: dict[RankAttempt, AgentFacts] = {}
        for key, path in self._files("facts.json"):
            facts = _decode(path, AgentFacts)
            if facts is not None:
                found[key] = _with_counts(facts, self._counts(key))
        return found

    def operations(self) -> Mapping[RankAttempt, int]:
        """How many operations each rank has entered until now."""
        records = ((key, read_ops(path)) for key, path in self._files("ops"))
        return {key: record.operations for key, record in records if record is not None}

    def faults(self) -> tuple[FaultReport, ...]:
        """All reports that a fault took, by rank and attempt."""
        reports = (_decode(path, FaultReport) for _, path in self._files("fault.json"))
        return tuple(report for report in reports if report is not None)

    def fault_times_ns(self) -> tuple[int, ...]:
        """When the faults took, by this process's clock; a rank's own may be another."""
        clocks = {(clock.rank, clock.attempt): clock.ahead_ns for clock in self.clocks()}
        ahead_ns = {key: ahead for key, ahead in clocks.items() if abs(ahead) >= SAME_NS}
        return tuple(report.time_ns - ahead_ns.get((report.rank, report.attempt), 0) for report in self.faults())

    def exits(self) -> Mapping[RankAttempt, RankExit]:
        """All announced ends."""
        exits = ((key, _decode(path, RankExit)) for key, path in self._files("exit.json"))
        return {key: found for key, found in exits if found is not None}

    def clocks(self) -> tuple[RankClock, ...]:
        """By how much each rank's clock is ahead of this process's."""
        found = []
        for key, path in self._files("facts.json"):
            ahead_ns = ahead_of_this_clock_ns(path)
            if ahead_ns is not None:
                found.append(RankClock(rank=key.rank, attempt=key.attempt, ahead_ns=ahead_ns))
        return tuple(found)

    def freeze_counts(self) -> None:
        """Copy each ops file beside itself: the counts when the evidence was complete, before anything is released."""
        for _, path in self._files("ops"):
            copy = path.with_name(path.name + ".collected")
            if not copy.exists():
                copy.write_bytes(path.read_bytes())

    def _counts(self, key: RankAttempt) -> OpsRecord | None:
        path = self._directory / f"rank_{key.rank}.a{key.attempt}.ops"
        return read_ops(path.with_name(path.name + ".collected")) or read_ops(path)

    def _files(self, suffix: str) -> Iterator[tuple[RankAttempt, Path]]:
        try:
            names = sorted(path.name for path in self._directory.iterdir())
        except OSError:
            return
        matches = (_NAME.fullmatch(name) for name in names)
        keyed = [
            (RankAttempt(int(match[1]), int(match[2])), self._directory / match[0])
            for match in matches
            if match is not None and match[3] == suffix
        ]
        yield from sorted(keyed)


def _decode(path: Path, shape: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except (OSError, msgspec.DecodeError):
        return None


def _with_counts(facts: AgentFacts, counts: OpsRecord | None) -> AgentFacts:
    if counts is None:
        return facts
    groups = tuple(
        msgspec.structs.replace(group, collectives=slot.collectives, p2p=slot.p2p, last_operation_ns=slot.last_ns)
        for group, slot in zip(facts.groups, counts.slots, strict=False)
    )
    return msgspec.structs.replace(facts, steps=counts.steps, groups=groups + facts.groups[len(groups) :])
