"""The agent of this process, if there is one, and the two calls a training script may make of it.

Both calls do nothing without an agent, so a script that makes them also runs alone.
"""

from typing import Protocol

__all__ = ["CurrentAgent", "adopt", "disarm", "fault_kind", "step"]


class CurrentAgent(Protocol):
    """What this module needs of `hangdrill.rank.agent.Agent`."""

    @property
    def fault_kind(self) -> str:
        """The kind of the fault the job runs with, on whichever rank."""

    def step(self) -> None:
        """One training step begins to be applied."""

    def disarm(self) -> None:
        """Take every hook off every group."""


_agents: list[CurrentAgent] = []


def adopt(agent: CurrentAgent) -> None:
    """Make `agent` the one of this process; the last one adopted counts."""
    _agents[:] = [agent]


def step() -> None:
    """For training loops without a torch optimizer: call it once a step, where `optimizer.step()` would stand."""
    for agent in _agents:
        agent.step()


def disarm() -> None:
    """Take the agent's hooks off every process group: operations cost nothing more, and are no longer counted."""
    for agent in _agents:
        agent.disarm()


def fault_kind() -> str:
    """The kind of the job's fault ("none" without an agent): a workload shapes itself to it, as with `dataloader`."""
    return _agents[0].fault_kind if _agents else "none"
