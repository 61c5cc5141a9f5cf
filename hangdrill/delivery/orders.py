"""What is asked of the delivery, and what the collector tells its process, line by line over its standard input.

Never on a command line, which every user of the host can read.
"""

from typing import Literal

import msgspec

from hangdrill.model.scenario import Incident

__all__ = ["DELIVER_WITHIN_S", "DeliveryOptions", "Line", "Orders"]

DELIVER_WITHIN_S = 30.0
"""How long the collector is held after it has finished, by default: a store that hangs costs so much and no more."""


class DeliveryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for. url None: nothing is delivered; there may be a hook all the same.

    within_s: for what is left once the collector has finished; then it stays in the spool. started_ns None: now.
    """

    url: str | None = None
    within_s: float = DELIVER_WITHIN_S
    job: str = ""
    host: str = ""
    """Under which its objects lie; default: this host's name. Two hosts with one name would meet in one place."""
    run: str = ""
    started_ns: int | None = None
    incident: Incident = msgspec.field(default_factory=Incident)

    @property
    def wanted(self) -> bool:
        """Whether there is anything to do."""
        return self.url is not None or self.incident.has_hook


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    evidence: str
    options: DeliveryOptions


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Any later line. `incident`: a hang that cannot be taken back any more. `finish`: nothing is written any more.

    by_s: on the monotonic clock of this host, when the delivery must be over.
    """

    word: Literal["incident", "finish"]
    noticed_ns: int = 0
    notice: str = ""
    attempt: int = 0
    only_asked: bool = False
    """Nobody noticed anything: the controller asked. It is an incident only if the diagnosis finds a hang."""
    by_s: float = 0.0
