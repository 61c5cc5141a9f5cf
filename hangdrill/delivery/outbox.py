"""What the collector holds of its delivery: it starts the process, tells it, and at the end waits for it, bounded."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

import msgspec

from hangdrill.delivery.descendants import end_with_descendants
from hangdrill.delivery.opening import is_local, local_path
from hangdrill.delivery.orders import DeliveryOptions, Line, Orders
from hangdrill.delivery.secrets import secret_in
from hangdrill.model.errors import MachineError, UsageError

__all__ = ["NoopOutbox", "Outbox", "ProcessOutbox", "check_delivery", "longest_s", "open_outbox"]

_SLACK_S = 5.0
"""For the process to start, to write its last record and to end."""


class Outbox(Protocol):
    """Tells of what happens; nothing here waits but `finish`."""

    def incident(self, *, noticed_ns: int, notice: str, attempt: int, only_asked: bool) -> None:
        """A hang that cannot be taken back any more. Once for each."""

    def finish(self) -> MachineError | None:
        """The collector writes nothing any more. Waits until all is delivered, at most `longest_s`; what went wrong."""


class NoopOutbox:
    """Nothing is to be delivered, and nobody is to be called."""

    def incident(self, *, noticed_ns: int, notice: str, attempt: int, only_asked: bool) -> None:
        """Nobody to tell."""

    def finish(self) -> MachineError | None:
        """Nothing to wait for."""
        return None


class ProcessOutbox:
    """A process of its own, in the collector's group: who ends that group ends both."""

    def __init__(self, evidence: Path, options: DeliveryOptions) -> None:
        self._options = options
        self._evidence = evidence
        self._process: subprocess.Popen[bytes] | None = None
        self._problem: MachineError | None = None
        try:
            self._process = subprocess.Popen([sys.executable, "-m", "hangdrill.delivery"], stdin=subprocess.PIPE)
        except OSError as error:
            self._problem = MachineError(f"cannot start the delivery: {error.strerror}", next_step=self._mend)
            return
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
        self._tell(Orders(evidence=str(evidence.absolute()), options=options))

    def incident(self, *, noticed_ns: int, notice: str, attempt: int, only_asked: bool) -> None:
        """To the process."""
        self._tell(Line(word="incident", noticed_ns=noticed_ns, notice=notice, attempt=attempt, only_asked=only_asked))

    def finish(self) -> MachineError | None:
        """Waits; a process that is not over in time is killed. What it has not delivered is still in the spool."""
        process = self._process
        if process is None:
            return self._problem
        self._tell(Line(word="finish", by_s=time.monotonic() + self._options.within_s))
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            code = process.wait(longest_s(self._options))
        except subprocess.TimeoutExpired:
            end_with_descendants(process.pid)  # a hook may be running
            process.wait()
            return MachineError("the delivery did not end in time and was ended", next_step=self._mend)
        if code == 0:
            return None
        return MachineError("the evidence was collected, but not all of it was delivered", next_step=self._mend)

    @property
    def _mend(self) -> str:
        return f"see delivery.json, then: hangdrill deliver {self._evidence} {self._options.url}"

    def _tell(self, message: msgspec.Struct) -> None:
        """A few hundred bytes into an empty pipe; a process that is gone hears nothing, and `finish` will say so."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), msgspec.json.encode(message) + b"\n")


def open_outbox(evidence: Path, options: DeliveryOptions) -> Outbox:
    """The outbox that the options ask for."""
    return ProcessOutbox(evidence, options) if options.wanted else NoopOutbox()


def longest_s(options: DeliveryOptions) -> float:
    """The longest that `finish` takes: the delivery, then each hook, and some slack. 0 when there is nothing to do."""
    if not options.wanted:
        return 0.0
    deliver_s = options.within_s if options.url is not None else 0.0
    hooks = bool(options.incident.command) + bool(options.incident.webhook)
    return deliver_s + hooks * (options.incident.timeout_s + 2.0) + _SLACK_S


def check_delivery(options: DeliveryOptions) -> None:
    """Raise UsageError for what can be seen to be wrong before anything runs. Asks no store."""
    url = options.url
    if url is None:
        return
    if not url:
        raise UsageError("the target has no name", where="--deliver-to", next_step="name a URL or a directory")
    if secret := secret_in(url):
        raise UsageError(
            f"the URL holds {secret}, which would be stored with the evidence",
            where="--deliver-to",
            next_step="give it in the environment or in fsspec's own configuration (docs/delivery.md)",
        )
    if is_local(url) and not local_path(url).parent.is_dir():
        raise UsageError(
            f"{local_path(url).parent} is not a directory",
            where="--deliver-to",
            next_step=_mend_of_place(url),
        )
    if not 0 < options.within_s < float("inf"):
        raise UsageError(f"must be a number of seconds above 0; got {options.within_s}", where="--deliver-within-s")


def _mend_of_place(url: str) -> str:
    """A name that begins with no / may have been meant as a store's URL."""
    mend = "mount the volume, or make that directory"
    return mend if url.startswith(("/", ".", "file:")) else f"{mend}; the URL of a store has ://, as s3://bucket/prefix"
