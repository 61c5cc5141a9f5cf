"""The table itself. The order matters: special rows come before general ones.

Measured with torch 2.15.0 on gloo, and with 2.15.0 and 2.11.0 on two H200s.
"""

from hangdrill.arrival.row import Arrival, Role
from hangdrill.model.scenario import FaultKind, Trigger

__all__ = ["ARRIVALS"]

USE_COLLECTOR = 'use trigger = "collector"'
BOTH = (Role.STALLED, Role.WAITING)
ALONE = (Trigger.NATIVE, Trigger.DEBUG_SERVER)
GLOO, NCCL2, LAZY, LEGACY = ("ProcessGroupGloo", "ProcessGroupNCCL2", "ProcessGroupNCCLLazy", "ProcessGroupNCCL")
ENDING_FAULTS = (FaultKind.KILL, FaultKind.RAISE, FaultKind.EXIT, FaultKind.OOM, FaultKind.STORE_DEATH)
DEAD_FAULTS = (FaultKind.STOP, FaultKind.KILL, FaultKind.STORE_DEATH, FaultKind.HOST_DEATH)
SELF_PENDING = (FaultKind.WRONG_OP, FaultKind.WRONG_SHAPE, FaultKind.WRONG_DTYPE, FaultKind.GPU_KERNEL)
ABORT_WAIT_S = 15.0
"""How long nccl2 waits between its dump and its abort: a poll within that time finds the ranks alive."""

_GLOO_ALONE = (
    Arrival(
        backend_classes=(GLOO,),
        triggers=(Trigger.NATIVE,),
        dumping=(),
        why="gloo has no abort hook, so torch never dumps by itself",
        mend=USE_COLLECTOR,
    ),
    Arrival(
        backend_classes=(GLOO,),
        triggers=(Trigger.DEBUG_SERVER,),
        dumping=(),
        why='gloo registers no rank with the recorder, so the debug server\'s fr_dump_file answers "rank is unset"',
        mend=USE_COLLECTOR,
    ),
)

_ENDED = (
    Arrival(
        triggers=ALONE,
        faults=ENDING_FAULTS,
        dumping=(),
        why="torchrun ends the other ranks within seconds of the first failure, before any watchdog fires",
        mend=USE_COLLECTOR,
    ),
)

_LAZY_ALONE = (
    Arrival(
        backend_classes=(LAZY,),
        triggers=(Trigger.NATIVE,),
        dumping=(),
        why="nccl-lazy wrote no dump in any stall that was measured",
        mend=USE_COLLECTOR,
    ),
    Arrival(
        backend_classes=(LAZY,),
        triggers=(Trigger.DEBUG_SERVER,),
        dumping=(),
        why="nccl-lazy calls itself healthy in every stall, so the debug server never asks it to dump",
        mend=USE_COLLECTOR,
    ),
)

_NCCL2_ALONE = (
    Arrival(
        backend_classes=(NCCL2,),
        triggers=(Trigger.NATIVE,),
        faults=SELF_PENDING,
        dumping=BOTH,
        why="every rank has a pending operation, so every rank's watchdog fires",
    ),
    Arrival(
        backend_classes=(NCCL2,),
        triggers=(Trigger.NATIVE,),
        dumping=(Role.WAITING,),
        why="nccl2 dumps only where an operation is pending, and tells no other rank: the stalled rank never dumps",
        mend=f"{USE_COLLECTOR}, or the debug server with an interval below {ABORT_WAIT_S:g} s",
    ),
    Arrival(
        backend_classes=(NCCL2,),
        triggers=(Trigger.DEBUG_SERVER,),
        faults=(FaultKind.STOP,),
        dumping=(Role.WAITING,),
        why="a stopped rank answers nobody, not even in C++",
        mend=f"{USE_COLLECTOR}, which keeps the last trace from before the stop",
    ),
    Arrival(
        backend_classes=(NCCL2,),
        triggers=(Trigger.DEBUG_SERVER,),
        faults=(FaultKind.HOLD_GIL,),
        dumping=(Role.WAITING,),
        why="each round of the debug server begins with dump_traceback, which waits 35 s for a GIL that is held",
        mend=USE_COLLECTOR,
    ),
    Arrival(
        backend_classes=(NCCL2,),
        triggers=(Trigger.DEBUG_SERVER,),
        below_interval_s=ABORT_WAIT_S,
        dumping=BOTH,
        why="the debug server asks every rank, if it polls often enough (each 60 s by default, too rarely)",
        mend="lower recorder.debug_server_interval_s",
    ),
    Arrival(
        backend_classes=(NCCL2,),
        triggers=(Trigger.DEBUG_SERVER,),
        from_interval_s=ABORT_WAIT_S,
        faults=SELF_PENDING,
        dumping=BOTH,
        why="every rank has a pending operation, so every rank's watchdog fires",
    ),
    Arrival(
        backend_classes=(NCCL2,),
        triggers=(Trigger.DEBUG_SERVER,),
        from_interval_s=ABORT_WAIT_S,
        dumping=(Role.WAITING,),
        why=f"nccl2 aborts {ABORT_WAIT_S:g} s after its own dump, sooner than the debug server polls again",
        mend=f"{USE_COLLECTOR}, or set recorder.debug_server_interval_s below {ABORT_WAIT_S:g}",
    ),
)

_LEGACY_ALONE = (
    Arrival(
        backend_classes=(LEGACY,),
        triggers=ALONE,
        faults=(FaultKind.STOP,),
        dumping=(Role.WAITING,),
        why="a stopped rank's watchdog is stopped too",
        mend=f"{USE_COLLECTOR}, which keeps the last trace from before the stop",
    ),
    Arrival(
        backend_classes=(LEGACY,),
        triggers=ALONE,
        dumping=BOTH,
        why="nccl-legacy broadcasts the timeout through the store, so every rank's watchdog dumps",
    ),
)

_COLLECTOR = (
    Arrival(
        triggers=(Trigger.COLLECTOR,),
        faults=DEAD_FAULTS,
        dumping=(Role.WAITING,),
        perhaps=(Role.STALLED,),
        why="a stopped or killed rank answers nobody; only what the collector had pulled before can be kept",
    ),
    Arrival(
        backend_classes=(GLOO,),
        triggers=(Trigger.COLLECTOR,),
        faults=(FaultKind.WRONG_SHAPE, FaultKind.WRONG_DTYPE),
        dumping=(Role.WAITING,),
        perhaps=(Role.STALLED,),
        why="gloo aborts the process that receives more than its buffer holds",
    ),
    Arrival(triggers=(Trigger.COLLECTOR,), dumping=BOTH, why="the collector pulls from every rank over its socket"),
)

ARRIVALS: tuple[Arrival, ...] = (*_GLOO_ALONE, *_ENDED, *_LAZY_ALONE, *_NCCL2_ALONE, *_LEGACY_ALONE, *_COLLECTOR)
