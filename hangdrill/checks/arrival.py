"""Which ranks dump by themselves, and why the others do not: measured facts of torch as data, with a look-up.

The source of every row is docs/what-torch-does.md. Rows are tried in order, the first that fits counts.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from hangdrill.model.scenario import FaultKind, Trigger

__all__ = ["ARRIVALS", "Arrival", "Role", "expected_arrival", "version_of"]

Version = tuple[int, ...]


class Role(Enum):
    """What a rank is in a hang: the one the fault is placed on, or one that waits for it."""

    STALLED = "stalled"
    WAITING = "waiting"


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """One measured row: under these circumstances, the ranks of these roles leave a dump; why, and what helps.

    since is the first torch version the row holds for and until the first it no longer holds for; an empty tuple is
    open. backend_class is the class that ran ("" is any), because the requested name does not tell. faults empty: any.
    """

    backend_class: str
    triggers: tuple[Trigger, ...]
    dumping: tuple[Role, ...]
    why: str
    mend: str = ""
    faults: tuple[FaultKind, ...] = ()
    since: Version = ()
    until: Version = ()


USE_COLLECTOR = 'use trigger = "collector"'
BOTH = (Role.STALLED, Role.WAITING)
ENDING_FAULTS = (FaultKind.KILL, FaultKind.RAISE, FaultKind.EXIT)
MISMATCHES = (FaultKind.WRONG_OP, FaultKind.WRONG_SHAPE, FaultKind.WRONG_DTYPE)

ARRIVALS: tuple[Arrival, ...] = (
    Arrival(
        backend_class="ProcessGroupGloo",
        triggers=(Trigger.NATIVE,),
        dumping=(),
        why="gloo has no abort hook, so torch never dumps by itself",
        mend=USE_COLLECTOR,
    ),
    Arrival(
        backend_class="ProcessGroupGloo",
        triggers=(Trigger.DEBUG_SERVER,),
        dumping=(),
        why='gloo registers no rank with the recorder, so the debug server\'s fr_dump_file answers "rank is unset"',
        mend=USE_COLLECTOR,
    ),
    Arrival(
        backend_class="",
        triggers=(Trigger.NATIVE, Trigger.DEBUG_SERVER),
        faults=ENDING_FAULTS,
        dumping=(),
        why="torchrun ends the other ranks within seconds of the first failure, before any watchdog fires",
        mend=USE_COLLECTOR,
    ),
    Arrival(
        backend_class="ProcessGroupNCCLLazy",
        triggers=(Trigger.NATIVE,),
        dumping=(),
        why="nccl-lazy wrote no dump in any stall that was measured",
        mend=USE_COLLECTOR,
    ),
    Arrival(
        backend_class="ProcessGroupNCCL2",
        triggers=(Trigger.NATIVE,),
        faults=MISMATCHES,
        dumping=BOTH,
        why="every rank has a pending operation, so every rank's watchdog fires",
    ),
    Arrival(
        backend_class="ProcessGroupNCCL2",
        triggers=(Trigger.NATIVE,),
        dumping=(Role.WAITING,),
        why="nccl2 dumps only where an operation is pending, and tells no other rank: the stalled rank never dumps",
        mend=USE_COLLECTOR,
    ),
    Arrival(
        backend_class="ProcessGroupNCCL2",
        triggers=(Trigger.DEBUG_SERVER,),
        faults=(FaultKind.STOP,),
        dumping=(Role.WAITING,),
        why="a stopped rank answers nobody, not even in C++",
        mend=USE_COLLECTOR + ", which keeps the last trace from before the stop",
    ),
    Arrival(
        backend_class="ProcessGroupNCCL2",
        triggers=(Trigger.DEBUG_SERVER,),
        dumping=BOTH,
        why="the debug server asks every rank, if it polls often enough (each 60 s by default, too rarely)",
        mend="lower recorder.debug_server_interval_s",
    ),
    Arrival(
        backend_class="ProcessGroupNCCL",
        triggers=(Trigger.NATIVE,),
        dumping=BOTH,
        why="nccl-legacy broadcasts the timeout through the store, so every rank's watchdog dumps",
    ),
    Arrival(
        backend_class="",
        triggers=(Trigger.COLLECTOR,),
        faults=(FaultKind.STOP,),
        dumping=(Role.WAITING,),
        why="a stopped rank answers nobody; only what the collector had pulled before can be kept",
    ),
    Arrival(
        backend_class="",
        triggers=(Trigger.COLLECTOR,),
        faults=(FaultKind.KILL,),
        dumping=(Role.WAITING,),
        why="a killed rank is gone; only what the collector had pulled before can be kept",
    ),
    Arrival(
        backend_class="",
        triggers=(Trigger.COLLECTOR,),
        dumping=BOTH,
        why="the collector pulls from every rank over its socket",
    ),
)

CLASS_OF_REQUEST = {
    "gloo": "ProcessGroupGloo",
    "nccl2": "ProcessGroupNCCL2",
    "nccl-lazy": "ProcessGroupNCCLLazy",
    "nccl-legacy": "ProcessGroupNCCL",
}
"""The class behind a requested name; plain "nccl" is left out, it depends on the version and the environment."""


def expected_arrival(
    *,
    torch: str,
    backend_class: str,
    backend_requested: str,
    trigger: Trigger,
    fault: FaultKind,
    rows: Sequence[Arrival] = ARRIVALS,
) -> Arrival | None:
    """The first row that fits; None where nothing was measured. torch is as torch spells it ("2.15.0+cu132")."""
    ran = backend_class or CLASS_OF_REQUEST.get(backend_requested, "")
    version = version_of(torch)
    for row in rows:
        if row.backend_class not in ("", ran) or trigger not in row.triggers:
            continue
        if row.faults and fault not in row.faults:
            continue
        if _holds_for(row, version):
            return row
    return None


def version_of(text: str) -> Version:
    """The leading numbers of a version: "2.15.0+cu132" is (2, 15, 0), "2.16.0a0+git" is (2, 16), "" is ()."""
    numbers: list[int] = []
    for part in text.split("+", maxsplit=1)[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _holds_for(row: Arrival, version: Version) -> bool:
    """An unknown version fits rows without a range only."""
    if not row.since and not row.until:
        return True
    return bool(version) and version >= row.since and (not row.until or version < row.until)
