"""What a fault does to the rank once it is reached: report, then block, die, or be late. Release is a file.

Faults that change an operation are in `hangdrill.rank.changes`. Every block is bounded by `max_hold_s` and ends with
the teardown, whatever becomes of the controller.
"""

import ctypes
import errno
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hangdrill.rank.accelerator import need_cuda, run_endless_kernel, run_out_of_memory
from hangdrill.rank.files import Flags, wait_until, write_json
from hangdrill.rank.orders import FaultOrder, Identity, Orders
from hangdrill.rank.stacks import frames_here

__all__ = ["Fault", "InjectedFault", "Reached"]

SPIN_ROUNDS = 20_000
"""Rounds of the busy loop between two looks at the hold file: about a millisecond."""


class InjectedFault(RuntimeError):
    """What the fault "raise" raises."""


class Reached:
    """Where the fault was reached: nothing but what the report says."""

    def __init__(self, *, group: str = "", op: str = "", sequence: int = 0) -> None:
        self.group = group
        self.op = op
        self.sequence = sequence


class Fault:
    """The fault of this process. It happens once."""

    def __init__(self, orders: Orders, who: Identity, flags: Flags) -> None:
        self.order: FaultOrder = orders.fault
        self.fired = False
        self._orders = orders
        self._who = who
        self._flags = flags
        self._actions: Mapping[str, Callable[[Reached], None]] = {
            "hold": self._hold,
            "dataloader": self._hold,
            "hold-gil": self._hold_gil,
            "stop": self._stop,
            "spin": self._spin,
            "raise": self._raise,
            "kill": self._kill,
            "exit": self._exit,
            "slow": self._slow,
            "in-destroy": self._in_destroy,
            "gpu-kernel": self._gpu_kernel,
            "oom": self._oom,
            "store-death": self._kill,
        }

    @property
    def is_ours(self) -> bool:
        """Whether this process is to suffer it."""
        return self.order.is_for(self._who)

    def is_at(self, place: str) -> bool:
        """Whether this process is to suffer it at `place` and has not yet."""
        return self.is_ours and not self.fired and self.order.at == place

    @property
    def was_reported(self) -> bool:
        """Whether this rank, or a process it forked, has reported the fault before."""
        return self._report_path.exists()

    @property
    def _report_path(self) -> Path:
        return self._flags.control / f"{self._who.stem}.fault.json"

    def happen(self, reached: Reached) -> None:
        """Report, and do it. Returns when the fault was released; raises for "raise", "exit" and "oom"."""
        self.fired = True
        if self.order.kind in ("gpu-kernel", "oom"):
            need_cuda()  # before the report: a fault that cannot take is not confirmed
        self.report(reached)
        self._actions[self.order.kind](reached)

    def report(self, reached: Reached) -> None:
        """Write fault.json: the fault takes now."""
        content: dict[str, Any] = {
            "rank": self._who.rank,
            "attempt": self._who.attempt,
            "kind": self.order.kind,
            "time_ns": time.time_ns(),
            "group": reached.group,
            "op": reached.op,
            "sequence": reached.sequence,
            "frames": frames_here(),
        }
        write_json(self._report_path, content)

    def hold_here(self) -> None:
        """Block while the hold file exists; an orphan lets go by itself."""
        parent = os.getppid()
        wait_until(lambda: self._flags.released() or os.getppid() != parent, limit_s=self._orders.max_hold_s)

    def _hold(self, reached: Reached) -> None:
        self.hold_here()

    def _in_destroy(self, reached: Reached) -> None:
        import torch.distributed as dist

        dist.destroy_process_group()  # `hangdrill.rank.places` holds in there, before it does anything

    def _hold_gil(self, reached: Reached) -> None:
        """Hold the GIL inside C until a byte arrives: no Python thread of this process runs meanwhile."""
        descriptor = os.open(self._flags.gil, os.O_RDWR | os.O_NONBLOCK)  # O_RDWR: no end of file when writers leave
        try:
            _poll_with_gil(descriptor, limit_s=self._orders.max_hold_s)
        finally:
            os.close(descriptor)

    def _stop(self, reached: Reached) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def _spin(self, reached: Reached) -> None:
        deadline = time.monotonic() + self._orders.max_hold_s
        while not self._flags.released() and time.monotonic() < deadline:
            for _ in range(SPIN_ROUNDS):
                pass

    def _raise(self, reached: Reached) -> None:
        raise InjectedFault(f"hangdrill made rank {self._who.rank} fail here, as the scenario asks")

    def _kill(self, reached: Reached) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _gpu_kernel(self, reached: Reached) -> None:
        """The kernel ends with the process, or after `max_hold_s`; this thread goes on and enqueues the operation."""
        run_endless_kernel(limit_s=self._orders.max_hold_s)

    def _oom(self, reached: Reached) -> None:
        run_out_of_memory()

    def _exit(self, reached: Reached) -> None:
        raise SystemExit(0)

    def _slow(self, reached: Reached) -> None:
        wait_until(self._flags.tearing_down, limit_s=self.order.delay_s)


class _PollFd(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


def _poll_with_gil(descriptor: int, *, limit_s: float) -> None:
    """poll(2) by a PyDLL, which does not release the GIL around the call."""
    poll = ctypes.PyDLL(None, use_errno=True).poll
    request = _PollFd(descriptor, select.POLLIN, 0)
    deadline = time.monotonic() + limit_s
    while (left_ms := int(1000 * (deadline - time.monotonic()))) > 0:
        if poll(ctypes.byref(request), ctypes.c_ulong(1), ctypes.c_int(left_ms)) >= 0:
            return
        if ctypes.get_errno() != errno.EINTR:  # a signal: its Python handler runs now, then the hold goes on
            raise OSError(ctypes.get_errno(), "poll failed in the hold of the GIL")
