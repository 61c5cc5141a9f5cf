"""`hangdrill preflight` for people: what was looked at, every finding with its mend, and what it comes to."""

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hangdrill.checks.words import count_text
from hangdrill.model.preflight import Preflight, Severity
from hangdrill.model.verdict import Verdict
from hangdrill.report.cells import cell
from hangdrill.report.style import severity_text, verdict_text

__all__ = ["print_preflight"]

SENTENCES = {
    Verdict.PASS: "nothing was found that would lose evidence",
    Verdict.FAIL: "a hang in this environment would leave less evidence than it should",
    Verdict.UNKNOWN: "it cannot be told whether a hang would leave evidence",
}


def print_preflight(console: Console, preflight: Preflight) -> None:
    """All of it; the verdict comes last, where the eye is after a long list."""
    _print_looked_at(console, preflight)
    for finding in preflight.findings:
        head = Text.assemble(
            severity_text(finding.severity), "  ", cell(finding.id, "bold"), "  ", cell(finding.where, "dim")
        )
        _print_line(console, head, 1)
        _print_line(console, cell(finding.what), 4)
        _print_line(console, Text.assemble(("mend: ", "bold cyan"), cell(finding.mend)), 4)
        console.print()
    counts = _counts(preflight)
    sentence = Text.assemble(verdict_text(preflight.verdict), f"  {SENTENCES[preflight.verdict]}")
    _print_line(console, sentence.append(f"; {counts}" if counts else "; no finding"), 1)


def _print_looked_at(console: Console, preflight: Preflight) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in preflight.looked_at.items():
        table.add_row(cell(name), cell(text))
    console.print()
    console.print(Padding(table, (0, 0, 1, 1), expand=False))


def _counts(preflight: Preflight) -> str:
    """ "2 lose evidence, 1 unknown, 1 risk"."""
    words = {
        Severity.LOSES_EVIDENCE: ("loses evidence", "lose evidence"),
        Severity.UNKNOWN: ("unknown", "unknown"),
    }
    parts = []
    for severity in Severity:
        count = sum(finding.severity is severity for finding in preflight.findings)
        if count and severity in words:
            parts.append(f"{count} {words[severity][count > 1]}")
        elif count:
            parts.append(count_text(count, severity.value))
    return ", ".join(parts)


def _print_line(console: Console, text: Text, margin: int) -> None:
    """One paragraph with its margin; on one line, however long, where nobody looks at columns."""
    if console.soft_wrap:
        console.print(Text.assemble(" " * margin, text))
    else:
        console.print(Padding(text, (0, 1, 0, margin)))
