"""Run every family of rules over the facts. Pure."""

from collections.abc import Callable, Iterator

import msgspec

from hangdrill.model.preflight import Finding, Preflight, Severity, preflight_verdict
from hangdrill.model.scenario import Trigger
from hangdrill.preflight.backend import group_timeout_s, implementation, requested
from hangdrill.preflight.catalogue import DUMP_FINDINGS, NATIVE_FILES
from hangdrill.preflight.delivery import delivery_findings, writes_no_file
from hangdrill.preflight.destination import destination_findings
from hangdrill.preflight.devices import device_findings
from hangdrill.preflight.hosts import host_findings
from hangdrill.preflight.looking import looking_findings
from hangdrill.preflight.names import variable_findings
from hangdrill.preflight.pods import pod_findings
from hangdrill.preflight.recorder import buffer_entries, recorder_findings
from hangdrill.preflight.servers import server_findings, stack_findings
from hangdrill.preflight.slurm import slurm_findings
from hangdrill.preflight.surroundings import Surroundings
from hangdrill.preflight.timeouts import timeout_findings
from hangdrill.preflight.versions import version_findings
from hangdrill.preflight.way_out import way_out_findings
from hangdrill.recorder.printable import printable

__all__ = ["FAMILIES", "examine"]

FAMILIES: tuple[Callable[[Surroundings], Iterator[Finding]], ...] = (
    recorder_findings,
    variable_findings,
    destination_findings,
    delivery_findings,
    way_out_findings,
    timeout_findings,
    server_findings,
    stack_findings,
    device_findings,
    host_findings,
    pod_findings,
    slurm_findings,
    version_findings,
    looking_findings,
)

ORDER = list(Severity)


def examine(facts: Surroundings) -> Preflight:
    """All findings, the worst first, and the verdict."""
    moot = DUMP_FINDINGS if writes_no_file(facts) and not facts.place.made_by_hangdrill else frozenset()
    raised = (finding for family in FAMILIES for finding in family(facts))
    findings = [_weighed(finding, facts) for finding in raised if finding.id not in moot]
    findings.sort(key=lambda finding: ORDER.index(finding.severity))
    return Preflight(verdict=preflight_verdict(tuple(findings)), looked_at=_looked_at(facts), findings=tuple(findings))


def _weighed(finding: Finding, facts: Surroundings) -> Finding:
    """Where the collector pulls every rank, a native file that is lost is a risk: the second road is gone."""
    if facts.job.trigger is Trigger.COLLECTOR and finding.id in NATIVE_FILES:
        return msgspec.structs.replace(finding, severity=Severity.RISK)
    return finding


def _looked_at(facts: Surroundings) -> dict[str, str]:
    place, job, runs = facts.place, facts.job, implementation(facts)
    timeout_s = group_timeout_s(facts)
    named = requested(facts) or "not known"
    texts = {
        "torch": facts.torch.version if facts.torch is not None else "not known",
        "backend": f"{named} ({runs.value})" if runs is not None else named,
        "evidence": job.trigger.value,
        "recorder": f"{buffer_entries(facts)} entries a rank",
        "dumps to": f"{place.prefix}<rank> ({place.chosen_by})",
        "file system": f"{place.file_system} on {place.mount_point}" if place.file_system else "not known",
        "delivered to": facts.way_out.deliver_to or "",
        "group timeout": f"{timeout_s:g} s" if timeout_s is not None else "not known",
        "script": job.script.path if job.script is not None else "",
    }
    return {name: printable(text) for name, text in texts.items() if text}
