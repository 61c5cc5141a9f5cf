"""One row of the arrival table."""

from enum import Enum

import msgspec

from hangdrill.model.scenario import FaultKind, Trigger

__all__ = ["Arrival", "Role", "Version"]

Version = tuple[int, ...]


class Role(Enum):
    """What a rank is in a hang: the one the fault is placed on, or one that waits for it."""

    STALLED = "stalled"
    WAITING = "waiting"


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """Under these circumstances the ranks of the roles `dumping` leave a dump, those of `perhaps` may, others do not.

    backend_classes: the classes that ran, since the requested name does not tell; empty: any. faults empty: any.
    since is the first torch version the row holds for and until the first it no longer holds for; empty is open.
    A row with a polling interval holds from from_interval_s on and below below_interval_s.
    """

    backend_classes: tuple[str, ...] = ()
    triggers: tuple[Trigger, ...]
    dumping: tuple[Role, ...]
    perhaps: tuple[Role, ...] = ()
    why: str
    mend: str = ""
    faults: tuple[FaultKind, ...] = ()
    since: Version = ()
    until: Version = ()
    from_interval_s: float = 0.0
    below_interval_s: float = float("inf")
