"""Calls the incident hook: a command with the news on its standard input, or a webhook that is posted to.

Once an incident: what is about to be called is written down first, so that a crash in between makes no second call. A
hook never harms the collection: it has a deadline, at which the command is ended with everything that it started.
"""

import io
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from hangdrill.delivery.descendants import adopt_orphans, descendants, end_descendants
from hangdrill.delivery.record import CALLS, read_calls, write_record
from hangdrill.delivery.secrets import webhook_shown
from hangdrill.delivery.webhook import OUTPUT_BYTES, post_in_time, printable_output, webhook_url
from hangdrill.model.delivery import HookCall, HookCalls, HookKind, IncidentNews

__all__ = ["Caller"]

_TRIES = 3
_PAUSE_S = 0.5
_REAP_S = 2.0
_LONGEST_VARIABLE = 30_000
"""In characters: the system's limit is 128 KiB for each variable."""


class Caller:
    """The hooks of one collector, and the record of their calls in its evidence directory."""

    def __init__(
        self,
        evidence: Path,
        *,
        command: Sequence[str],
        webhook: str | None,
        timeout_s: float,
        environ: Mapping[str, str],
        redact: Callable[[str], str],
    ) -> None:
        self._path = evidence / CALLS
        self._command = tuple(command)
        self._webhook = webhook
        self._timeout_s = timeout_s
        self._environ = environ
        self._redact = redact
        self._calls = (read_calls(evidence) or HookCalls()).calls

    def call(self, news: IncidentNews) -> None:
        """Call each hook that was not called for this incident yet."""
        if self._command:
            self._once(
                news, HookKind.COMMAND, self._redact(self._command[0] + " ..." * (len(self._command) > 1)), self._run
            )
        if self._webhook:
            self._once(news, HookKind.WEBHOOK, webhook_shown(self._webhook), self._tell)

    def _once(
        self, news: IncidentNews, kind: HookKind, target: str, act: Callable[[IncidentNews, HookCall], HookCall]
    ) -> None:
        if any(call.key == news.key and call.kind is kind for call in self._calls):
            return
        call = HookCall(key=news.key, kind=kind, target=target, attempt=news.attempt, started_ns=time.time_ns())
        before = self._calls
        if not self._store((*before, call)):
            return  # what could not be written down is not called: nobody could tell how often
        try:
            call = act(news, call)
        except Exception as error:  # a hook must not end the delivery, whatever it does
            call = msgspec.structs.replace(call, error=f"{type(error).__name__}: {error}"[:300])
        texts = {"error": self._redact(call.error), "output": self._redact(call.output)}
        self._store((*before, msgspec.structs.replace(call, ended_ns=time.time_ns(), **texts)))

    def _store(self, calls: tuple[HookCall, ...]) -> bool:
        try:
            write_record(self._path, HookCalls(calls=calls))
        except OSError:
            return False
        self._calls = calls
        return True

    # A command.

    def _run(self, news: IncidentNews, call: HookCall) -> HookCall:
        adopt_orphans()
        leave = frozenset(descendants(os.getpid()))
        with tempfile.TemporaryFile() as text:  # a file: a hook that does not read it blocks nobody
            text.write(msgspec.json.encode(news))
            text.seek(0)
            try:
                process = subprocess.Popen(
                    self._command,
                    stdin=text,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env={**self._environ, **variables_of(news)},
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                what = f"cannot be started: {getattr(error, 'strerror', None) or error}"
                return msgspec.structs.replace(call, tries=1, error=what)
        output, timed_out = _hear(process, self._timeout_s, leave)
        return msgspec.structs.replace(
            call,
            tries=1,
            exit_status=process.returncode,
            timed_out=timed_out,
            ok=not timed_out and process.returncode == 0,
            error=_command_error(process.returncode, self._timeout_s if timed_out else None),
            output=printable_output(output),
        )

    # A webhook.

    def _tell(self, news: IncidentNews, call: HookCall) -> HookCall:
        url = webhook_url(self._webhook or "", self._environ)
        if not url:
            error = f"{self._webhook} is not set in the environment of the collector"
            return msgspec.structs.replace(call, error=error)
        until_s = time.monotonic() + self._timeout_s
        for number in range(1, _TRIES + 1):
            answer = post_in_time(url, news, left_s=until_s - time.monotonic())
            call = msgspec.structs.replace(
                call,
                tries=number,
                ok=not answer.error,
                http_status=answer.status,
                timed_out=answer.late,
                error=answer.error.replace(url, webhook_shown(url)),
                output=answer.output,
            )
            pause_s = _PAUSE_S * 2 ** (number - 1)
            if not answer.again or time.monotonic() + pause_s >= until_s:
                break
            time.sleep(pause_s)  # within the deadline of the whole call, as was just looked at
        return call


def variables_of(news: IncidentNews) -> dict[str, str]:
    """For a command that does not read its standard input."""
    found = news.diagnosis
    culprits = () if found is None else found.culprits
    variables = {
        "HANGDRILL_INCIDENT": news.key,
        "HANGDRILL_TEXT": news.text,
        "HANGDRILL_JOB": news.job,
        "HANGDRILL_JOB_RUN": news.run_id,
        "HANGDRILL_HOST": news.host,
        "HANGDRILL_VERDICT": "" if found is None else found.verdict.value,
        "HANGDRILL_CULPRITS": ",".join(str(culprit.rank) for culprit in culprits),
        "HANGDRILL_EVIDENCE": news.evidence,
        "HANGDRILL_DELIVERED_TO": news.delivered_to or "",
    }
    # The system starts no program with a longer one, or with a NUL; its standard input has all.
    return {name: value.replace("\0", "")[:_LONGEST_VARIABLE] for name, value in variables.items()}


def _hear(process: "subprocess.Popen[bytes]", timeout_s: float, leave: Collection[int]) -> tuple[bytes, bool]:
    """What it says, and whether the deadline came first. After it nothing is left of it."""
    heard = bytearray()
    until_s = time.monotonic() + timeout_s

    def listen() -> None:
        """To the end, of which the beginning is kept: whoever prints without end is not to fill the memory."""
        with process.stdout or io.BytesIO() as stream:
            while block := os.read(stream.fileno(), 1 << 16):
                heard.extend(block[: max(0, OUTPUT_BYTES - len(heard))])

    listener = threading.Thread(target=listen, name="hook's output", daemon=True)
    listener.start()
    timed_out = False
    try:
        process.wait(timeout_s)
        # What it has started and left behind may go on until the deadline.
        listener.join(max(0.0, until_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        end_descendants(limit_s=_REAP_S, leave=leave)
        process.wait(_REAP_S)
        listener.join(_REAP_S)
    return bytes(heard), timed_out


def _command_error(status: int, over_s: float | None) -> str:
    if over_s is not None:
        return f"not over within {over_s:g} s: it was ended with everything that it started"
    if status < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"ended by {names.get(-status, f'signal {-status}')}"
    return f"exit status {status}" if status else ""
