"""Every time of a record by one clock, the controller's: the ranks' own times are moved by what their clocks are ahead.

Hosts' clocks may differ by minutes. What a rank says (its start, its last operations, its fault, its end, the times in
its dumps) is by its own clock; what controller and collector say is not. Nothing after this needs to know.
A collector on another host has that host's clock, as its ranks have: what it says when it pulled is moved with theirs.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from hangdrill.collector.clocks import SAME_NS
from hangdrill.model.dump import Operation, RankDump
from hangdrill.model.run import (
    AgentFacts,
    Artifact,
    FaultReport,
    GroupCount,
    Manifest,
    RankExit,
    RankPull,
    RecordedRun,
)

__all__ = ["by_one_clock"]

_OF_A_NODE = re.compile(r"node\d+/")
"""In the manifest of a job on several hosts: the evidence of one of them, stored by its own collector."""


def by_one_clock(run: RecordedRun) -> RecordedRun:
    """The same record; ranks whose clock is not known, or is the controller's within a second, are left as they are."""
    clocks = _Clocks(run)
    if not clocks.differ:
        return run
    return replace(
        run,
        agents={rank: _agent(agent, clocks) for rank, agent in run.agents.items()},
        earlier_agents=tuple(_agent(agent, clocks) for agent in run.earlier_agents),
        faults=tuple(_fault(report, clocks) for report in run.faults),
        manifest=None if run.manifest is None else _manifest(run.manifest, clocks),
        artifacts=_artifacts(run.artifacts, clocks),
        dumps={rank: tuple(_dump(dump, clocks.of(rank)) for dump in dumps) for rank, dumps in run.dumps.items()},
    )


class _Clocks:
    def __init__(self, run: RecordedRun) -> None:
        self._ahead_ns = {
            (clock.rank, clock.attempt): clock.ahead_ns for clock in run.clocks if abs(clock.ahead_ns) >= SAME_NS
        }
        self._first = {rank: ahead for (rank, _), ahead in sorted(self._ahead_ns.items(), reverse=True)}
        self.differ = bool(self._ahead_ns)

    def of(self, rank: int, attempt: int | None = None) -> int:
        """How far the rank's clock is ahead; without an attempt, in the first of them."""
        return self._first.get(rank, 0) if attempt is None else self._ahead_ns.get((rank, attempt), 0)


def _agent(agent: AgentFacts, clocks: _Clocks) -> AgentFacts:
    ahead_ns = clocks.of(agent.rank, agent.attempt)
    return replace(
        agent,
        started_ns=_moved(agent.started_ns, ahead_ns),
        written_ns=_moved(agent.written_ns, ahead_ns),
        groups=_counts(agent.groups, ahead_ns),
    )


def _fault(report: FaultReport, clocks: _Clocks) -> FaultReport:
    return replace(report, time_ns=_moved(report.time_ns, clocks.of(report.rank, report.attempt)))


def _manifest(manifest: Manifest, clocks: _Clocks) -> Manifest:
    return replace(
        manifest,
        ranks=tuple(_pull(pull, clocks.of(pull.rank, pull.attempt)) for pull in manifest.ranks),
        artifacts=_artifacts(manifest.artifacts, clocks),
    )


def _artifacts(artifacts: Iterable[Artifact], clocks: _Clocks) -> tuple[Artifact, ...]:
    return tuple(
        replace(each, pulled_ns=_moved(each.pulled_ns, clocks.of(each.rank, each.attempt)))
        if _OF_A_NODE.match(each.path)
        else each
        for each in artifacts
    )


def _pull(pull: RankPull, ahead_ns: int) -> RankPull:
    return replace(pull, exit=_exit(pull.exit, ahead_ns), counts=_counts(pull.counts, ahead_ns))


def _exit(end: RankExit | None, ahead_ns: int) -> RankExit | None:
    return None if end is None else replace(end, time_ns=_moved(end.time_ns, ahead_ns))


def _counts(groups: Iterable[GroupCount], ahead_ns: int) -> tuple[GroupCount, ...]:
    return tuple(replace(group, last_operation_ns=_moved(group.last_operation_ns, ahead_ns)) for group in groups)


def _dump(dump: RankDump, ahead_ns: int) -> RankDump:
    return dump if not ahead_ns else replace(dump, operations=_operations(dump.operations, ahead_ns))


def _operations(operations: Sequence[Operation], ahead_ns: int) -> tuple[Operation, ...]:
    return tuple(
        replace(
            each,
            created_ns=_moved(each.created_ns, ahead_ns),
            started_ns=None if each.started_ns is None else _moved(each.started_ns, ahead_ns),
            completed_ns=None if each.completed_ns is None else _moved(each.completed_ns, ahead_ns),
        )
        for each in operations
    )


def _moved(time_ns: int, ahead_ns: int) -> int:
    """0 means that there is no time."""
    return time_ns - ahead_ns if time_ns else 0
