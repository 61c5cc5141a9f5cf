"""Do the waits fit into each other: group timeout, dump, abort, torchrun, pod or scheduler? Pure.

The order of a stall, as measured with torch 2.15 (docs/what-torch-does.md): the group's timeout, up to a second until
the watchdog sees it, 5.5 to 7 s for the dump with its stacks, a wait of 15 s, SIGABRT; torchrun then gives the other
ranks 30 s from TERM to KILL.
"""

from collections.abc import Iterator

from hangdrill.model.preflight import Finding
from hangdrill.model.scenario import FaultKind, Trigger
from hangdrill.preflight.backend import Implementation, group_timeout_s, implementation, is_nccl, version
from hangdrill.preflight.catalogue import found
from hangdrill.preflight.surroundings import Surroundings
from hangdrill.preflight.variables import number, value_of

__all__ = ["timeout_findings"]

DUMP_S = 7.0
ABORT_WAIT_S = 15.0
NOTICE_S = 1.0
TORCHRUN_S = 30.0
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""1: each attempt makes a store of its own; torch compares with "1" alone."""


def timeout_findings(facts: Surroundings) -> Iterator[Finding]:
    """All of this family."""
    yield from _dump_wait(facts)
    yield from _outside_limit(facts)
    yield from _heartbeat(facts)
    if facts.job.launcher == "torchrun":
        yield from _shutdown(facts)
        yield from _restart(facts)
    yield from _grace(facts)


def _dump_wait(facts: Surroundings) -> Iterator[Finding]:
    wait_ms = number("TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC", facts.environ, 15_000)
    if wait_ms is None or wait_ms >= DUMP_S * 1000:
        return
    name, text = value_of("TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC", facts.environ)
    what = f"a dump is given up after {wait_ms / 1000:g} s, and one with stacks takes up to {DUMP_S:g} s"
    yield found("dump-wait-too-short", what=what, where=f"{name}={text}", mend=f"set {name}=15000 or more")


def _outside_limit(facts: Surroundings) -> Iterator[Finding]:
    if facts.kill_after_s is None:
        return
    timeout_s = group_timeout_s(facts)
    if timeout_s is None:
        what = "the group's timeout is not known, so whether a dump comes before --kill-after-s is not either"
        mend = "pass timeout=timedelta(seconds=...) to init_process_group, or say --timeout-s"
        yield found("group-timeout-not-known", what=what, where="timeout", mend=mend)
        return
    is_pulled = facts.job.trigger is Trigger.COLLECTOR  # which looks at 0.8 x the timeout
    needed_s = timeout_s + (0.0 if is_pulled else NOTICE_S + DUMP_S + ABORT_WAIT_S)
    if facts.kill_after_s < needed_s:
        what = f"the job is ended after {facts.kill_after_s:g} s of silence, and its evidence needs {needed_s:g} s"
        where = f"group timeout {timeout_s:g} s"
        mend = (
            f"lower the group's timeout below {max(facts.kill_after_s - needed_s + timeout_s, 1):g} s, or wait longer"
        )
        yield found("killed-before-dump", what=what, where=where, mend=mend)


def _heartbeat(facts: Surroundings) -> Iterator[Finding]:
    beat_s = number("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", facts.environ, 600)
    wait_ms = number("TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC", facts.environ, 15_000)
    if implementation(facts) is not Implementation.LEGACY or beat_s is None or wait_ms is None:
        return
    if beat_s * 1000 < wait_ms:
        what = f"a watchdog that is silent for {beat_s} s is ended, and its dump may take {wait_ms / 1000:g} s"
        where = f"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC={beat_s}"
        yield found(
            "heartbeat-too-short", what=what, where=where, mend="unset it, or make it longer than the dump's wait"
        )


def _shutdown_s(facts: Surroundings) -> tuple[float, str]:
    """torchrun's wait from TERM to KILL, and who says so."""
    if facts.job.shutdown_timeout_s is not None:
        return facts.job.shutdown_timeout_s, "--shutdown-timeout"
    told = number("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", facts.environ, int(TORCHRUN_S))
    is_set = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" in facts.environ and told is not None
    return (TORCHRUN_S if told is None else float(told)), ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT" if is_set else "")


def _shutdown(facts: Surroundings) -> Iterator[Finding]:
    wait_s, said_by = _shutdown_s(facts)
    if is_nccl(facts) and wait_s < ABORT_WAIT_S:
        what = f"torchrun kills {wait_s:g} s after TERM, and a rank waits up to {ABORT_WAIT_S:g} s for its dump"
        yield found("shutdown-timeout-short", what=what, where=said_by, mend="set it to 30 or more")
    if said_by and wait_s != TORCHRUN_S and version(facts) is not None and (version(facts) or ()) >= (2, 15):
        what = f"on a worker's failure torchrun waits {TORCHRUN_S:g} s whatever this says; it counts on a signal only"
        yield found("shutdown-timeout-ignored", what=what, where=said_by, mend="do not rely on it")


def _restart(facts: Surroundings) -> Iterator[Finding]:
    """pytorch 135712: seen in 6 of 7 restarts on gloo, and in none once each attempt had a store of its own. A drill of
    a dying store has one unless its scenario says otherwise."""
    restarts = facts.job.max_restarts or 0
    default = "1" if facts.job.fault is FaultKind.STORE_DEATH else "0"
    if restarts < 1 or implementation(facts) is not Implementation.GLOO or facts.environ.get(OWN_STORE, default) == "1":
        return
    what = "torchrun keeps its store for the next attempt, and gloo finds the addresses of the dead ranks in it"
    yield found("restart-shares-store", what=what, where=f"--max-restarts {restarts}", mend=f"set {OWN_STORE}=1")


def _grace(facts: Surroundings) -> Iterator[Finding]:
    """A pod's terminationGracePeriodSeconds or Slurm's KillWait against what torchrun needs for its ranks."""
    machine = facts.machine
    if facts.grace_s is None:
        if machine.in_kubernetes or machine.in_slurm:
            who = "the pod's terminationGracePeriodSeconds" if machine.in_kubernetes else "Slurm's KillWait"
            what = f"how long a cancelled job has from TERM to KILL is not known ({who})"
            yield found("grace-not-known", what=what, where="--grace-s", mend="say it with --grace-s SECONDS")
        return
    runs_torchrun = facts.job.launcher in ("torchrun", "kubernetes")
    needed_s = _shutdown_s(facts)[0] if runs_torchrun else ABORT_WAIT_S
    if facts.grace_s <= needed_s:
        what = (
            f"{facts.grace_s:g} s from TERM to KILL is no more than the {needed_s:g} s that ending the ranks may take"
        )
        mend = f"raise it to {needed_s + ABORT_WAIT_S:g} s, which leaves time to store evidence"
        told_by_slurm = facts.slurm is not None and facts.slurm.kill_wait_s == facts.grace_s
        where = "job.kubernetes.grace_s" if facts.pod is not None else "KillWait" if told_by_slurm else "--grace-s"
        yield found("grace-too-short", what=what, where=where, mend=mend)
