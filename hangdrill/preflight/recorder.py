"""Would the recorder record, and would its dump be whole? Pure."""

from collections.abc import Iterator

from hangdrill.model.preflight import Finding
from hangdrill.model.scenario import Trigger
from hangdrill.preflight.backend import Implementation, implementation
from hangdrill.preflight.catalogue import found
from hangdrill.preflight.surroundings import Surroundings
from hangdrill.preflight.variables import flag, number, value_of

__all__ = ["DEFAULT_ENTRIES", "buffer_entries", "recorder_findings"]

DEFAULT_ENTRIES = 2000


def recorder_findings(facts: Surroundings) -> Iterator[Finding]:
    """All of this family."""
    yield from _buffer(facts)
    yield from _dump(facts)
    yield from _handling(facts)


def buffer_entries(facts: Surroundings) -> int:
    """Entries of one rank's buffer; torch's default where the value cannot be read (which is a finding of its own)."""
    entries = number("TORCH_FR_BUFFER_SIZE", facts.environ, DEFAULT_ENTRIES)
    return DEFAULT_ENTRIES if entries is None else entries


def _buffer(facts: Surroundings) -> Iterator[Finding]:
    entries = buffer_entries(facts)
    name, text = value_of("TORCH_FR_BUFFER_SIZE", facts.environ)
    where, mend = f"{name}={text}", f"set TORCH_FR_BUFFER_SIZE={DEFAULT_ENTRIES} or more, or unset {name}"
    if entries <= 0:
        yield found("recorder-off", what="the flight recorder is off: no dump has an entry", where=where, mend=mend)
    elif entries < DEFAULT_ENTRIES:
        what = f"only the last {entries} operations of a rank are kept; a rank that runs ahead loses the stuck one"
        yield found("recorder-buffer-small", what=what, where=where, mend=mend)


def _dump(facts: Surroundings) -> Iterator[Finding]:
    environ = facts.environ
    if facts.job.trigger is Trigger.NATIVE and flag("TORCH_FR_DUMP_ON_TIMEOUT", environ, default=True) is False:
        name, text = value_of("TORCH_FR_DUMP_ON_TIMEOUT", environ)
        what = "torch is told to write no dump on a timeout, and nothing else collects"
        yield found("dump-on-timeout-off", what=what, where=f"{name}={text}", mend=f"unset {name}, or set it to 1")
    if flag("TORCH_INCLUDE_STACK_TRACE", environ, default=True) is False:
        what = "dumps have no stacks: the culprit's line of code is not in them"
        where = f"TORCH_INCLUDE_STACK_TRACE={environ['TORCH_INCLUDE_STACK_TRACE']}"
        yield found("stacks-left-out", what=what, where=where, mend="unset TORCH_INCLUDE_STACK_TRACE")
    if flag("TORCH_INCLUDE_ONLY_ACTIVE", environ, default=False):
        what = "dumps hold unfinished operations only, so a rank that is absent cannot be told from one that is ahead"
        where = f"TORCH_INCLUDE_ONLY_ACTIVE={environ['TORCH_INCLUDE_ONLY_ACTIVE']}"
        yield found("history-left-out", what=what, where=where, mend="unset TORCH_INCLUDE_ONLY_ACTIVE")


def _handling(facts: Surroundings) -> Iterator[Finding]:
    environ = facts.environ
    is_legacy = implementation(facts) is Implementation.LEGACY and facts.job.trigger is Trigger.NATIVE
    if is_legacy and flag("TORCH_NCCL_ENABLE_MONITORING", environ, default=True) is False:
        what = "the monitor thread, which writes the legacy backend's dumps, is off"
        where = f"TORCH_NCCL_ENABLE_MONITORING={environ['TORCH_NCCL_ENABLE_MONITORING']}"
        yield found("monitoring-off", what=what, where=where, mend="unset TORCH_NCCL_ENABLE_MONITORING")
    is_new = implementation(facts) in (Implementation.NCCL2, Implementation.LAZY)
    is_pulled = facts.job.trigger is Trigger.COLLECTOR
    if is_new and not is_pulled and flag("TORCH_NCCL_BLOCKING_WAIT", environ, default=False):
        name, text = value_of("TORCH_NCCL_BLOCKING_WAIT", environ)
        what = "with blocking wait the new backend has no watchdog: whether it writes a dump was not measured"
        yield found("blocking-wait", what=what, where=f"{name}={text}", mend=f"unset {name}, or use the collector")
    if number("TORCH_NCCL_ASYNC_ERROR_HANDLING", environ, 3) == 0:
        name, text = value_of("TORCH_NCCL_ASYNC_ERROR_HANDLING", environ)
        what = "the watchdog does nothing on an error or a timeout: a hung job may hang for good"
        yield found("errors-not-handled", what=what, where=f"{name}={text}", mend=f"unset {name}")
