"""The agent's own count of operations beside what a dump says of the same group. Pure; used by several checks.

The recorder's number spaces differ by backend: see GroupStatus and docs/what-torch-does.md.
"""

from hangdrill.model.dump import RankDump
from hangdrill.model.run import AgentFacts, GroupCount

__all__ = [
    "GLOO",
    "PREFIX_OF_CLASS",
    "default_group",
    "enqueued_collectives",
    "last_sequence",
    "prefix_of",
    "recordable",
    "said_last_enqueued",
]

PREFIX_OF_CLASS = {
    "ProcessGroupGloo": "gloo",
    "ProcessGroupNCCL2": "nccl2",
    "ProcessGroupNCCLLazy": "nccl-lazy",
    "ProcessGroupNCCL": "nccl",
}
"""The word before the colon in a dump's operation names, by the class that ran."""

GLOO = "gloo"
DEFAULT_PG_ID = "0"


def prefix_of(agent: AgentFacts, group: GroupCount | None = None) -> str:
    """What the operations' names must start with. A class that is not known goes by the name it was requested with."""
    backend_class = (group.backend_class if group is not None else "") or agent.backend_class
    return PREFIX_OF_CLASS.get(backend_class, agent.backend_requested)


def recordable(agent: AgentFacts, group: GroupCount) -> int:
    """How many of a group's operations the recorder can know: gloo records no p2p."""
    return group.collectives + (0 if prefix_of(agent, group) == GLOO else group.p2p)


def default_group(agent: AgentFacts) -> GroupCount | None:
    """The group of all ranks."""
    return next((group for group in agent.groups if group.desc == "default_pg" or group.name == "0"), None)


def last_sequence(dump: RankDump, group_name: str) -> int:
    """The highest collective sequence id of a group in a dump, 0 when it has none."""
    sequences = (item.sequence for item in dump.operations if item.group_name == group_name and not item.p2p)
    return max(sequences, default=0)


def said_last_enqueued(dump: RankDump) -> int | None:
    """pg_status.last_enqueued of the default group, None when the dump has no status of it."""
    return next((status.last_enqueued for status in dump.status if status.pg_id == DEFAULT_PG_ID), None)


def enqueued_collectives(dump: RankDump, agent: AgentFacts, group: GroupCount) -> int | None:
    """The default group's collectives by pg_status alone, for a dump without history; None where it cannot say.

    nccl2 and nccl-lazy count from 0, legacy and gloo from 1. On gloo p2p takes numbers out of the same space, and
    nothing was measured of the others: with p2p in the group the number proves nothing.
    """
    last = said_last_enqueued(dump)
    if last is None or group.p2p:
        return None
    if last < 0:
        return 0
    return last + 1 if prefix_of(agent, group) in ("nccl2", "nccl-lazy") else last
