"""`hangdrill certify`, `verify` and `compare` for people at a terminal."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hangdrill.checks.words import count_text
from hangdrill.model.certification import DryRun, ReceiptComparison, Verification
from hangdrill.model.receipt import CellRecord, Line, Receipt, StackRecord
from hangdrill.model.run import DrillResult
from hangdrill.model.verdict import Verdict
from hangdrill.report.cells import cell
from hangdrill.report.style import verdict_text

__all__ = ["PlainWatcher", "duration_text", "print_comparison", "print_dry_run", "print_receipt", "print_verification"]

MOST_NUMBERS = 30
MANY_LINES = 3
QUIET_S = 10.0
"""A cell that takes minutes says where it is, and no more often than this."""
TOLD_PHASES = ("canary", "checkpoint")
"""A drill takes seconds, and has many phases: they are not told."""


class PlainWatcher:
    """A line for each stack and each cell, with the time since the beginning; and, as a listener, where a cell is."""

    def __init__(self, console: Console, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock_s = clock_s
        self._began_s = self._said_s = clock_s()

    def stack(self, stack: StackRecord) -> None:
        """Its torch, or why there is none."""
        found = f"torch {stack.fingerprint.torch}" if stack.fingerprint is not None and stack.fingerprint.torch else ""
        where = f"{stack.image} {stack.python}".strip()
        self._say(cell(stack.name, "bold"), cell(f"  {stack.missing or found}  "), cell(where, "dim"))

    def begins(self, cell_id: str, title: str, number: int, total: int) -> None:
        """Which, of how many."""
        self._say(cell(f"[{number}/{total}] "), cell(cell_id, "bold"), cell(f"  {title}"))

    def ended(self, record: CellRecord, lines: Sequence[Line]) -> None:
        """The verdict, and how many lines are of which; every line is told at the end."""
        counts = Counter(line.verdict for line in lines)
        text = ", ".join(f"{counts[one]} {one.value}" for one in Verdict if counts[one])
        self._say(Text("  "), verdict_text(record.verdict), cell(f"  {_ended_text(record)}: {text}"))

    def phase(self, name: str, detail: str = "") -> None:
        """ "pair 3 of 8, baseline", when nothing was said for a while."""
        if name in TOLD_PHASES and self._clock_s() - self._said_s >= QUIET_S:
            self._say(cell(f"  {detail}", "dim"))

    def rank(self, rank: int, state: str, detail: str = "") -> None:
        """Not told."""

    def note(self, text: str) -> None:
        """Not told: the drill's own record has it."""

    def finished(self, result: DrillResult, run_dir: Path) -> None:
        """Not told: the cell's end is."""

    def _say(self, *parts: Text) -> None:
        self._said_s = self._clock_s()
        when, text = f"{self._said_s - self._began_s:7.1f} s", Text.assemble(*parts)
        if self._console.soft_wrap:
            self._console.print(Text.assemble(when, "  ", text))
            return
        row = Table.grid(padding=(0, 2))
        row.add_row(when, text)
        self._console.print(row)


def _ended_text(record: CellRecord) -> str:
    if not record.ran:
        return record.why_not
    return f"{record.id}, {'from an earlier run' if record.resumed else duration_text(record.wall_s)}"


def duration_text(seconds: float) -> str:
    """ "42 s", "7 min", "1 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def print_dry_run(console: Console, dry: DryRun) -> None:
    """The matrix, and how long it will take."""
    console.print()
    for name, python in dry.stacks.items():
        console.print(Text.assemble(" ", cell(f"{name:12}", "cyan"), cell(python)), soft_wrap=True)
    console.print()
    table = _table("cell", "stacks", "GPUs", "lines", "about")
    for one in dry.cells:
        about = duration_text(one.estimate_s) if not one.blocked else f"UNKNOWN: {one.blocked}"
        gpus = str(one.gpus) if one.gpus else ""
        table.add_row(*map(cell, (one.id, ", ".join(one.stacks), gpus, str(one.lines), about)))
    console.print(table)
    lines = sum(one.lines for one in dry.cells)
    text = f"{count_text(len(dry.cells), 'cell')}, {count_text(lines, 'line')} and those of the stacks"
    console.print(cell(f"\n {text}: about {duration_text(dry.estimate_s)} on an idle machine. Nothing was started."))


def print_receipt(console: Console, receipt: Receipt, out_dir: Path, *, signed: bool) -> None:
    """Every line that does not pass, what it came to, and where the rest is."""
    console.print()
    for lines in _alike(line for line in receipt.lines if line.verdict is not Verdict.PASS):
        _print_lines(console, lines)
    passed = sum(line.verdict is Verdict.PASS for line in receipt.lines)
    console.print(cell(f" {passed} of {len(receipt.lines)} lines pass"))
    _paragraph(console, Text.assemble(verdict_text(receipt.verdict), cell(f"  {receipt.sentence}")), 1)
    _paragraph(console, cell(f"valid until {receipt.valid_until}, while the candidate's fingerprint stays the same"), 1)
    names = ["checklist.html", "checklist.md", "receipt.json", *(["receipt.dsse.json"] if signed else ())]
    console.print(cell(f" {out_dir}: {', '.join(names)}"), soft_wrap=True)


def _alike(lines: Iterable[Line]) -> list[list[Line]]:
    """Lines that did not pass for the same reason are told once, before those that have one of their own: else what was
    left out buries what was found."""
    groups: dict[tuple[Verdict, str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.verdict, line.detail, line.mend), []).append(line)
    many = [group for group in groups.values() if len(group) >= MANY_LINES]
    return [*many, *([line] for group in groups.values() if len(group) < MANY_LINES for line in group)]


def _print_lines(console: Console, lines: Sequence[Line]) -> None:
    line = lines[0]
    told = (cell(line.id, "bold"), cell(f"  {line.claim}"))
    if len(lines) > 1:
        told = (cell(count_text(len(lines), "line"), "bold"), cell(f"  {', '.join(one.id for one in lines)}"))
    _paragraph(console, Text.assemble(verdict_text(line.verdict), "  ", *told), 1)
    if line.detail:
        _paragraph(console, cell(line.detail), 4)
    if line.mend:
        _paragraph(console, Text.assemble(("next: ", "bold cyan"), cell(line.mend)), 4)


def print_verification(console: Console, found: Verification) -> None:
    """One row a question; what the receipt says only when its signature holds."""
    receipt = found.receipt
    if receipt is not None:
        stack = receipt.candidate.fingerprint
        torch = f", torch {stack.torch}" if stack is not None else ""
        console.print(cell(f"\n {receipt.title}{torch}{f', ring {receipt.ring}' if receipt.ring else ''}"))
    table = _table("", "", "")
    table.show_header = False
    for answer in found.answers:
        text = cell(answer.detail)
        if answer.mend:
            text = Text.assemble(text, "\n", ("next: ", "bold cyan"), cell(answer.mend))
        table.add_row(cell(answer.question, "cyan"), verdict_text(answer.verdict), text)
    console.print(table)
    sentences = {
        Verdict.PASS: "the receipt is valid",
        Verdict.FAIL: "the receipt is refused",
        Verdict.UNKNOWN: "it cannot be told whether the receipt is valid",
    }
    console.print(Text.assemble("\n ", verdict_text(found.verdict), f"  {sentences[found.verdict]}"))


def print_comparison(console: Console, found: ReceiptComparison) -> None:
    """What changed between two receipts."""
    console.print(cell(f"\n before  {found.before}\n after   {found.after}\n"), soft_wrap=True)
    table = _table("before", "after", "line")
    for line in found.lines:
        text = Text.assemble(
            cell(line.line, "bold"), cell(f"\n{line.claim}{f': {line.detail}' if line.detail else ''}")
        )
        table.add_row(_or_none(line.before), _or_none(line.after), text)
    console.print(table if found.lines else cell(" every line came to the same verdict"))
    _list(console, "stack", (f"{one.what}: {one.before or 'none'} -> {one.after or 'none'}" for one in found.stack))
    _list(console, "new difference", found.new_differences)
    _list(console, "no more", found.gone_differences)
    for one in found.numbers[:MOST_NUMBERS]:
        ratio = "" if one.ratio is None else f"  x {one.ratio:.3g}"
        console.print(cell(f" {one.line}: {one.before:.4g} -> {one.after:.4g} {one.unit}{ratio}"))
    console.print(Text.assemble("\n ", verdict_text(found.verdict)))


def _list(console: Console, name: str, texts: Iterable[str]) -> None:
    for text in texts:
        console.print(Text.assemble(" ", cell(name, "cyan"), cell(f"  {text}")))


def _or_none(verdict: Verdict | None) -> Text:
    return verdict_text(verdict) if verdict is not None else Text("-")


def _table(*heads: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 1), header_style="dim")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _paragraph(console: Console, text: Text, margin: int) -> None:
    """With its margin; on one line, however long, where nobody looks at columns."""
    if console.soft_wrap:
        console.print(Text.assemble(" " * margin, text))
    else:
        console.print(Padding(text, (0, 1, 0, margin)))
