"""The controller's half of a fault: arm it before the launch, learn that it took, and release it, always.

The agent places the fault itself (`hangdrill.rank`); here are the files and signals by which it is let go again.
"""

import contextlib
import os
from collections.abc import Collection
from enum import Enum
from pathlib import Path

import msgspec

from hangdrill.drill.supervise import Supervisor
from hangdrill.model.errors import InternalError
from hangdrill.model.run import FaultReport
from hangdrill.model.scenario import Fault, FaultKind

__all__ = ["FaultState", "PlacedFault", "Released"]


class FaultState(Enum):
    """How far a fault has come."""

    PLANNED = "planned"
    ARMED = "armed"
    CONFIRMED = "confirmed"
    RELEASED = "released"


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """What a release had to do; all empty when there was nothing left to release."""

    holds: tuple[str, ...] = ()
    fifos: tuple[str, ...] = ()
    continued: tuple[int, ...] = ()


class PlacedFault:
    """One scenario's fault, in one control directory."""

    def __init__(self, fault: Fault, control: Path) -> None:
        self._fault = fault
        self._control = control
        self.state = FaultState.PLANNED

    def arm(self) -> None:
        """Make what the agent will block on. Before the launch, so that no rank can run past it."""
        if self.state is not FaultState.PLANNED:
            raise InternalError(f"a fault is armed once, and this one is {self.state.value}")
        for rank in self._fault.targets:
            if self._fault.kind is FaultKind.HOLD_GIL:
                os.mkfifo(self._control / f"gil_{rank}", 0o600)
            elif self._fault.kind is not FaultKind.NONE:
                (self._control / f"hold_{rank}").touch(mode=0o600)
        self.state = FaultState.ARMED

    def missing(self, reports: Collection[FaultReport]) -> tuple[int, ...]:
        """The target ranks that have not reported their fault."""
        return tuple(sorted(set(self._fault.targets) - {report.rank for report in reports}))

    def confirm(self, reports: Collection[FaultReport]) -> None:
        """Take the agents' reports as proof. Raises InternalError when a target is missing."""
        if self.state is not FaultState.ARMED or self.missing(reports):
            raise InternalError(f"the fault cannot be confirmed: {self.state.value}, missing {self.missing(reports)}")
        self.state = FaultState.CONFIRMED

    def release(self, supervisor: Supervisor) -> Released:
        """Let every rank go on: remove hold files, end holds of the GIL, continue the stopped. Safe to repeat."""
        self.state = FaultState.RELEASED
        return Released(
            holds=tuple(path.name for path in sorted(self._control.glob("hold_*")) if _remove(path)),
            fifos=tuple(path.name for path in sorted(self._control.glob("gil_*")) if _wake(path)),
            continued=supervisor.resume(),
        )

    def sweep(self) -> None:
        """Remove the FIFOs, once no process is left that could read them."""
        for path in self._control.glob("gil_*"):
            _remove(path)


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _wake(path: Path) -> bool:
    """Write the byte that the rank waits for; False when nobody reads (ENXIO), or it was written before."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.write(descriptor, b"!") == 1
        finally:
            os.close(descriptor)
    return False
