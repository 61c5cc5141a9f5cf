"""The process beside the collector that delivers and calls hooks, so that neither can hold up a rank or a pull.

It ends when it was told to finish and has, at the latest at the time it was told; a collector that is killed counts as
the word to finish. SIGINT, SIGTERM and SIGHUP are the collector's to act on, not its own.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hangdrill.delivery.courier import Courier
from hangdrill.delivery.hook import Caller
from hangdrill.delivery.news import make_news, read_diagnosis
from hangdrill.delivery.opening import normal_url
from hangdrill.delivery.orders import Line, Orders
from hangdrill.delivery.record import RECORD, locked, read_manifest, starting_record, write_record
from hangdrill.delivery.secrets import Redactor
from hangdrill.delivery.webhook import webhook_url
from hangdrill.model.delivery import Delivery, DeliveryState
from hangdrill.model.diagnosis import Diagnosis, HangVerdict
from hangdrill.model.errors import ExitCode, HangdrillError
from hangdrill.model.run import Manifest

__all__ = ["serve"]

_LOOK_S = 0.2


def serve(environ: Mapping[str, str]) -> int:
    """Read orders from standard input, and do them. The exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    inbox = _Inbox(sys.stdin.fileno())
    first = inbox.first()
    orders = msgspec.json.decode(first, type=Orders)
    evidence = Path(orders.evidence)
    try:
        with locked(evidence):
            return _Service(orders, evidence, inbox, environ).run()
    except HangdrillError as error:
        print(f"delivery: {error}", file=sys.stderr)
        return int(error.exit_code)


class _Service:
    """One collector's delivery, from its first word to the last."""

    def __init__(self, orders: Orders, evidence: Path, inbox: "_Inbox", environ: Mapping[str, str]) -> None:
        options = orders.options
        webhook = options.incident.webhook
        self._options = options
        self._evidence = evidence
        self._inbox = inbox
        redact = Redactor(environ, *((webhook_url(webhook, environ),) if webhook else ()))
        self._courier = None if options.url is None else self._make_courier(options.url, redact)
        self._caller = Caller(
            evidence,
            command=options.incident.command,
            webhook=webhook,
            timeout_s=options.incident.timeout_s,
            environ=environ,
            redact=redact,
        )
        self._incidents: list[tuple[Line, float]] = []
        self._calling: threading.Thread | None = None
        self._finish_by_s: float | None = None

    def _make_courier(self, url: str, redact: Redactor) -> Courier:
        options = self._options
        record = starting_record(
            self._evidence,
            normal_url(url),
            job=options.job,
            run=options.run,
            host=options.host,
            started_ns=options.started_ns or time.time_ns(),
        )
        write_record(self._evidence / RECORD, record)
        return Courier(self._evidence, record, redact=redact)

    def run(self) -> int:
        """Until told to finish, and then until all is done or the time is over."""
        while True:
            for line in self._inbox.lines(0 if self._is_busy() else _LOOK_S):
                self._hear(line)
            if self._inbox.closed and self._finish_by_s is None:  # the collector was killed
                self._hear(Line(word="finish", by_s=time.monotonic() + self._options.within_s))
            self._deliver()
            self._call_hooks()
            told_all = not self._incidents and self._calling is None
            if self._finish_by_s is not None and told_all and (self._is_settled() or self._late()):
                break
            if self._courier is not None and self._is_busy():
                self._courier.wait(_LOOK_S)
        return self._last_words()

    def _hear(self, line: Line) -> None:
        if line.word == "incident":
            self._incidents.append((line, time.monotonic() + self._options.within_s))
        elif self._finish_by_s is None:
            self._finish_by_s = line.by_s
            if self._courier is not None and _is_hang(read_manifest(self._evidence)):
                self._courier.take_manifest()

    def _deliver(self) -> None:
        if self._courier is None or self._late():
            return
        if _is_hang(read_manifest(self._evidence)):
            self._courier.take()
        self._courier.step()

    def _call_hooks(self) -> None:
        """Each once everything is delivered, or the time for that is over; one after the other, in a thread: a hook
        that hangs holds up no delivery. It has a deadline of its own."""
        if self._calling is not None and not self._calling.is_alive():
            self._calling = None
        if self._calling is None and self._incidents:
            line, until_s = self._incidents[0]
            if self._is_settled() or self._late() or time.monotonic() >= until_s:
                del self._incidents[0]
                record = None if self._courier is None else self._courier.record
                self._calling = threading.Thread(target=self._call, args=(line, record), name="hooks", daemon=True)
                self._calling.start()

    def _call(self, line: Line, record: Delivery | None) -> None:
        manifest = read_manifest(self._evidence)
        diagnosis = read_diagnosis(self._evidence, manifest.world_size if manifest is not None else None)
        if line.only_asked and not (isinstance(diagnosis, Diagnosis) and diagnosis.verdict is HangVerdict.HANG):
            return
        run = record.run if record is not None else self._options.run
        if not run and manifest is not None:
            run = manifest.run_id
        # Without an id the time of the notice keeps two runs apart.
        run = run or str(line.noticed_ns)
        self._caller.call(
            make_news(line, diagnosis, evidence=self._evidence, job=self._options.job or "job", run=run, record=record)
        )

    def _is_settled(self) -> bool:
        return self._courier is None or self._courier.settled

    def _is_busy(self) -> bool:
        return self._courier is not None and not self._courier.settled

    def _late(self) -> bool:
        return self._finish_by_s is not None and time.monotonic() >= self._finish_by_s

    def _last_words(self) -> int:
        if self._courier is None:
            return int(ExitCode.PASS)
        self._courier.give_up(f"the time to deliver ({self._options.within_s:g} s) was over")
        record = self._courier.record
        if record.complete or not _is_hang(read_manifest(self._evidence)):  # a hang may have been taken back meanwhile
            return int(ExitCode.PASS)
        there = sum(one.state is DeliveryState.DELIVERED for one in record.artifacts)
        first = next((one for one in record.artifacts if one.state is not DeliveryState.DELIVERED), None)
        why = f"{first.path}: {first.last_error}" if first is not None else "the manifest was not"
        mend = f"{first.mend}; then " if first is not None and first.mend else ""
        print(
            f"delivery: {there} of {len(record.artifacts)} artifacts were delivered to {record.prefix}: {why}\n"
            f"  next: {mend}hangdrill deliver {self._evidence} {record.url}",
            file=sys.stderr,
        )
        return int(ExitCode.MACHINE)


class _Inbox:
    """Lines from the collector, without waiting longer than is said."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self.closed = False

    def first(self) -> bytes:
        """The first line; the collector has written it before this process began."""
        while b"\n" not in self._buffer and not self.closed:
            self._read()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def lines(self, wait_s: float) -> list[Line]:
        """What has come; waits for the first at most so long."""
        if self.closed:
            if wait_s:
                select.select([], [], [], wait_s)
            return []
        if select.select([self._descriptor], [], [], wait_s)[0]:
            self._read()
        *whole, self._buffer = self._buffer.split(b"\n")
        return [msgspec.json.decode(line, type=Line) for line in whole]

    def _read(self) -> None:
        data = os.read(self._descriptor, 1 << 16)
        self._buffer += data
        self.closed = not data


def _is_hang(manifest: Manifest | None) -> bool:
    """A job without a hang leaves proofs of health, which nobody needs to look at from afar."""
    return manifest is not None and manifest.noticed_ns is not None
