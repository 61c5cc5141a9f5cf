"""Colours and words of the terminal, in one place. Everything that has a colour says the same in a word too.

The colours are those that can be read on a dark and on a light background; plain yellow and white cannot.
"""

from rich.text import Text

from hangdrill.model.diagnosis import HangVerdict
from hangdrill.model.preflight import Severity
from hangdrill.model.verdict import Verdict
from hangdrill.report.cells import cell

__all__ = ["AMBER", "RANK_STYLES", "hang_text", "rank_text", "severity_text", "state_text", "verdict_text"]

AMBER = "dark_orange3"

VERDICT_STYLES = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red", Verdict.UNKNOWN: f"bold {AMBER}"}
HANG_STYLES = {
    HangVerdict.NO_HANG: "bold green",
    HangVerdict.HANG: "bold red",
    HangVerdict.UNDECIDED: f"bold {AMBER}",
}
SEVERITY_STYLES = {
    Severity.LOSES_EVIDENCE: "bold red",
    Severity.UNKNOWN: f"bold {AMBER}",
    Severity.RISK: AMBER,
    Severity.NOTE: "cyan",
}
RANK_STYLES = {
    "starting": "dim",
    "running": "green",
    "held": "bold red",
    "absent": "bold red",
    "waiting": AMBER,
    "dumped": "cyan",
    "gone": "magenta",
}


def verdict_text(verdict: Verdict) -> Text:
    """PASS, FAIL or UNKNOWN."""
    return Text.assemble((verdict.value.upper(), VERDICT_STYLES[verdict]))


def hang_text(verdict: HangVerdict) -> Text:
    """HANG, NO HANG or UNDECIDED."""
    return Text.assemble((verdict.value.replace("-", " ").upper(), HANG_STYLES[verdict]))


def severity_text(severity: Severity) -> Text:
    """LOSES EVIDENCE, UNKNOWN, risk or note: what does not end with exit code 0 is in capitals."""
    word = severity.value.replace("-", " ")
    is_loud = severity in (Severity.LOSES_EVIDENCE, Severity.UNKNOWN)
    return Text.assemble((word.upper() if is_loud else word, SEVERITY_STYLES[severity]))


def state_text(state: str, detail: str = "") -> Text:
    """A rank's state, and what there is to say of it; the fault alone when the state is not known."""
    if not state:
        return cell(detail, RANK_STYLES["held"])
    text = cell(state, RANK_STYLES.get(state, "default"))
    return Text.assemble(text, cell(f" ({detail})")) if detail and detail != state else text


def rank_text(rank: int, state: str, detail: str = "") -> Text:
    """ "rank 1 held (stop)"."""
    return Text.assemble(f"rank {rank} ", state_text(state, detail))
