"""Torch's debug server and py-spy: would they answer, in time, and to whom? Pure."""

from collections.abc import Iterator

from hangdrill.model.preflight import Finding
from hangdrill.model.scenario import Trigger
from hangdrill.preflight.backend import Implementation, implementation
from hangdrill.preflight.catalogue import found
from hangdrill.preflight.surroundings import DebugServerCall, JobKind, Surroundings
from hangdrill.preflight.timeouts import ABORT_WAIT_S

__all__ = ["server_findings", "stack_findings"]

NOBODY_TRACES = 3
"""A ptrace_scope that stays until the next boot, for root too."""
INSTALL = "install hangdrill's extra `debug-server` (aiohttp, jinja2, tabulate) in the ranks' environment"


def server_findings(facts: Surroundings) -> Iterator[Finding]:
    """Of the debug server; nothing when nobody wants one."""
    script = facts.job.script
    calls = script.debug_servers if script is not None else ()
    if not calls and facts.job.trigger is not Trigger.DEBUG_SERVER:
        return
    yield from _can_start(facts)
    yield found(
        "debug-server-open",
        what="the debug server listens on all interfaces, without a password: who reaches the port can read stacks",
        where=f"{script.path}:{calls[0].line}" if script is not None and calls else "debug server",
        mend="keep its ports behind a firewall, or use the collector, whose sockets only the owner can open",
    )
    if implementation(facts) is Implementation.NCCL2:
        what = "it makes a rank write its dump again, without stacks, over the one with stacks"
        mend = "use the collector, which keeps both"
        yield found("debug-server-overwrites", what=what, where="fr_dump_file", mend=mend)
    for call in calls:
        yield from _of_call(call, f"{script.path if script else ''}:{call.line}")
    if not calls:
        yield from _without_call(facts)


def _can_start(facts: Surroundings) -> Iterator[Finding]:
    torch = facts.torch
    if torch is None:
        return
    if not torch.has_debug_server:
        what = f"torch {torch.version} has no torch.distributed.debug"
        mend = "use the collector, or a torch that has it"
        yield found("debug-server-cannot-start", what=what, where="torch", mend=mend)
    elif torch.missing_for_debug_server:
        what = f"the debug server needs packages that are missing: {', '.join(torch.missing_for_debug_server)}"
        yield found("debug-server-cannot-start", what=what, where="packages", mend=INSTALL)


def _of_call(call: DebugServerCall, where: str) -> Iterator[Finding]:
    if call.interval_s is None or call.has_dump_dir is None:
        what = "dump_interval or dump_dir is decided at run time"
        yield found("debug-server-not-known", what=what, where=where, mend="see that it is below 15 s, and set")
    if call.has_dump_dir is False:
        what = "without dump_dir it writes nothing by itself: somebody must open its page while the job hangs"
        yield found("debug-server-no-directory", what=what, where=where, mend="pass dump_dir=... and dump_interval=5")
    elif call.interval_s is not None:
        yield from _interval(call.interval_s, where)
    if not call.guarded:
        what = "started outside `if __name__ == '__main__'`: a spawned server process runs the whole script again"
        yield found("debug-server-unguarded", what=what, where=where, mend="put the call behind a main guard")


def _interval(interval_s: float, where: str) -> Iterator[Finding]:
    if interval_s >= ABORT_WAIT_S:
        what = (
            f"it asks each {interval_s:g} s, and ranks abort {ABORT_WAIT_S:g} s after the timeout: it may come too late"
        )
        yield found("debug-server-slow", what=what, where=where, mend="set an interval of 5 s")


def _without_call(facts: Surroundings) -> Iterator[Finding]:
    """A scenario starts the server itself; a command relies on its script."""
    if facts.job.kind is JobKind.SCENARIO and facts.job.debug_interval_s is not None:
        yield from _interval(facts.job.debug_interval_s, "recorder.debug_server_interval_s")
    elif facts.job.kind is not JobKind.SCENARIO:
        what = "no call of start_debug_server was seen: if nobody else starts it, there is none"
        mend = "call torch.distributed.debug.start_debug_server(dump_dir=..., dump_interval=5) in every rank"
        yield found("debug-server-not-known", what=what, where="script", mend=mend)


def stack_findings(facts: Surroundings) -> Iterator[Finding]:
    """Of py-spy, the only way to the stack of a rank that holds its GIL or is stopped."""
    machine = facts.machine
    if machine.py_spy is None:
        what = "py-spy is not installed: a rank that holds its GIL or is stopped leaves no stack"
        yield found("py-spy-missing", what=what, where="PATH", mend="pip install 'hangdrill[stacks]'")
        return
    nobody = machine.ptrace_scope == NOBODY_TRACES
    if not nobody and (machine.can_trace or machine.ptrace_scope in (None, 0)):
        return
    if machine.can_trace is None and not nobody:
        what = f"ptrace_scope is {machine.ptrace_scope}, and the capabilities of this process could not be read"
        yield found("py-spy-not-known", what=what, where="/proc/self/status", mend="mount /proc, then look again")
        return
    lacks = "which forbids it to everyone" if nobody else "and CAP_SYS_PTRACE is missing"
    what = f"ptrace_scope is {machine.ptrace_scope}, {lacks}: py-spy may not look at a rank"
    mend = "give the collector CAP_SYS_PTRACE (a pod: securityContext.capabilities.add), or set ptrace_scope to 0"
    where = "/proc/sys/kernel/yama/ptrace_scope"
    yield found("py-spy-not-permitted", what=what, where=where, mend=mend)
