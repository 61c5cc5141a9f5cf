"""What is known to arrive from this backend on this road. Pure; the only module that asks the table of arrivals."""

from collections.abc import Iterator

from hangdrill.arrival import Role, expected_arrival
from hangdrill.model.preflight import Finding
from hangdrill.model.scenario import FaultKind, Trigger
from hangdrill.preflight.backend import Implementation, implementation, requested
from hangdrill.preflight.catalogue import found
from hangdrill.preflight.surroundings import JobKind, Surroundings

__all__ = ["Known", "delivery_findings", "known_delivery", "writes_no_file"]

Known = tuple[frozenset[Role], str]
"""The roles that leave a dump, and why the others do not."""

COLLECT = (
    "run it as `HANGDRILL_SOCKETS=DIR torchrun ... -m hangdrill.rank SCRIPT` with "
    "`hangdrill collect --sockets DIR --to EVIDENCE` beside it (docs/collect.md)"
)
SERVER = "start torch's debug server with dump_dir=... and dump_interval=5"


def known_delivery(
    *, torch: str, backend_class: str, trigger: Trigger, fault: FaultKind, interval_s: float
) -> Known | None:
    """Who dumps under this fault on one rank of several; None where nothing was measured. The seam to the table."""
    row = expected_arrival(
        torch=torch,
        backend_class=backend_class,
        backend_requested="",
        trigger=trigger,
        fault=fault,
        interval_s=interval_s,
    )
    return None if row is None else (frozenset(row.dumping), row.why)


def delivery_findings(facts: Surroundings) -> Iterator[Finding]:
    """All of this family."""
    name, trigger = requested(facts), facts.job.trigger
    if trigger is Trigger.COLLECTOR:
        yield from _collector(facts)
        return
    if name is None:
        mend = "say --backend nccl or --backend gloo, or name a scenario or a script that does"
        what = "which backend the job uses is not known, and it decides whether the stalled rank leaves a dump"
        yield found("backend-not-known", what=what, where="job", mend=mend)
        return
    interval_s = _interval_s(facts)
    if trigger is Trigger.DEBUG_SERVER and interval_s is None:
        return  # what is not known of the server is said by its own rules
    known = _known(facts, trigger, interval_s or 0.0)
    yield from _told(known, f"backend {name}, {trigger.value}", facts)


def writes_no_file(facts: Surroundings) -> bool:
    """Whether torch is known to write no dump into its own place. Asked from outside, gloo alone refuses to."""
    if facts.job.trigger is not Trigger.NATIVE and implementation(facts) is not Implementation.GLOO:
        return False
    known = _known(facts, Trigger.NATIVE)
    return known is not None and not known[0]


def _known(facts: Surroundings, trigger: Trigger, interval_s: float = 0.0) -> Known | None:
    runs = implementation(facts)
    if runs is None or facts.torch is None:
        return None
    return known_delivery(
        torch=facts.torch.version,
        backend_class=runs.value,
        trigger=trigger,
        fault=facts.job.fault,
        interval_s=interval_s,
    )


def _collector(facts: Surroundings) -> Iterator[Finding]:
    sockets = facts.sockets
    if sockets is not None and not sockets.exists:
        what = f"{sockets.directory} is not there: no collector was started, and without one nobody pulls the evidence"
        mend = f"start `hangdrill collect --sockets {sockets.directory} --to EVIDENCE` before the job, on every host"
        yield found("sockets-directory-missing", what=what, where="HANGDRILL_SOCKETS", mend=mend)


def _interval_s(facts: Surroundings) -> float | None:
    """How often the debug server asks: the scenario's word, or the first call's literal."""
    if facts.job.kind is JobKind.SCENARIO:
        return facts.job.debug_interval_s
    calls = facts.job.script.debug_servers if facts.job.script is not None else ()
    return calls[0].interval_s if calls else None


def _told(known: Known | None, where: str, facts: Surroundings) -> Iterator[Finding]:
    collect = 'use trigger = "collector"' if facts.job.kind is JobKind.SCENARIO else COLLECT
    if known is None:
        what = "nothing was measured of what this backend leaves on this road"
        yield found("delivery-not-known", what=what, where=where, mend=f"drill it with hangdrill run, or {collect}")
    elif not known[0]:
        yield found("no-rank-dumps", what=f"no rank leaves a dump: {known[1]}", where=where, mend=collect)
    elif Role.STALLED not in known[0]:
        mend = f"{collect}; or {SERVER}"
        yield found("stalled-rank-does-not-dump", what=f"the culprit leaves none: {known[1]}", where=where, mend=mend)
