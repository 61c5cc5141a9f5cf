"""What `hangdrill preflight` says of an environment, before anything is run in it: findings, each with its mend.

The rules are in `hangdrill.preflight`; this is the value that is printed, and its published schema.
"""

from enum import Enum
from typing import Literal

import msgspec

from hangdrill.model.verdict import Verdict

__all__ = ["Finding", "Preflight", "Severity", "preflight_verdict"]


class Severity(Enum):
    """What a finding costs, the worst first."""

    LOSES_EVIDENCE = "loses-evidence"
    """A hang would leave less than it should."""
    UNKNOWN = "unknown"
    """It could not be looked at, and it may lose evidence."""
    RISK = "risk"
    """Evidence is lost under a further circumstance, or the job itself is in danger."""
    NOTE = "note"
    """Nothing to do today."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. id is stable; where: a variable, a file and line, a flag or a path; mend: what to do."""

    id: str
    severity: Severity
    what: str
    where: str
    mend: str


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found, the worst first, and what was looked at."""

    schema: Literal["hangdrill.preflight/1"] = "hangdrill.preflight/1"
    verdict: Verdict
    looked_at: dict[str, str]
    """What the findings are about: "torch", "backend", "dumps to", ... as sentences for people."""
    findings: tuple[Finding, ...]


def preflight_verdict(findings: tuple[Finding, ...]) -> Verdict:
    """FAIL when evidence would be lost, UNKNOWN when something could not be looked at, else PASS."""
    severities = {finding.severity for finding in findings}
    if Severity.LOSES_EVIDENCE in severities:
        return Verdict.FAIL
    return Verdict.UNKNOWN if Severity.UNKNOWN in severities else Verdict.PASS
