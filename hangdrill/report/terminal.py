"""The tables of the terminal. Everything is printed to the console that comes in; nothing is judged here.

Readable at 80 columns, on a light and on a dark background, and without any colour.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hangdrill.checks.words import count_text, list_text
from hangdrill.model.run import CheckResult, DrillResult, RecordedRun
from hangdrill.model.verdict import Verdict
from hangdrill.report.cells import cell
from hangdrill.report.diagnosed import print_diagnosis
from hangdrill.report.matrix import CellWord, axes, cell_text, cells_of, is_matrix, of_field, remarks, total_text
from hangdrill.report.ranks import MISSING, RankRow, rank_rows
from hangdrill.report.style import AMBER, state_text, verdict_text

__all__ = ["print_diagnosis", "print_matrix", "print_plan", "print_result", "print_summary"]

CELL_STYLES = {CellWord.WRONG: "bold red", CellWord.CANNOT_TELL: AMBER, CellWord.RIGHT: "green"}
COUNT_WORDS = ((Verdict.PASS, "passed"), (Verdict.FAIL, "failed"), (Verdict.UNKNOWN, "unknown"))


def print_result(console: Console, result: DrillResult, run_dir: Path | str, run: RecordedRun | None = None) -> None:
    """All of one drill: checks, ranks, the diagnosis in one sentence, the verdict and where to look.

    With the record, the table of ranks also says the last operation of each and where it stands.
    """
    console.print()
    console.print(_checks_table(result.checks))
    rows = rank_rows(result, run)
    if rows:
        console.print()
        console.print(_ranks_table(rows))
    console.print()
    if result.sentence:
        _print_line(console, cell(result.sentence, "bold"))
        console.print()
    _print_line(console, _verdict_line(result))
    console.print(Text.assemble(" ", cell(str(run_dir), "dim")), soft_wrap=True)


def print_summary(console: Console, results: Sequence[DrillResult]) -> None:
    """One row a drill, then the counts."""
    table = _table("verdict", "drill", "took", "what it came to")
    table.columns[0].no_wrap = True
    table.columns[2].justify = "right"
    table.columns[2].no_wrap = True
    for result in results:
        total_s = result.timings.total_s
        elapsed = "" if total_s is None else f"{total_s:.1f} s"
        table.add_row(verdict_text(result.verdict), cell(result.scenario), cell(elapsed), _reason(result))
    console.print()
    console.print(table)
    console.print()
    _print_line(console, _counts_line(results))


def print_matrix(console: Console, results: Sequence[DrillResult]) -> None:
    """Workload x fault in one table when the results are a matrix, else their summary."""
    if not is_matrix(results):
        print_summary(console, results)
        return
    cells = cells_of(results)
    workloads, kinds = axes(cells)
    table = _table("fault", *(_broken_at_hyphen(workload) for workload in workloads))
    table.columns[0].no_wrap = True
    for kind in kinds:
        table.add_row(cell(kind), *(_coloured(cell_text(of_field(cells, workload, kind))) for workload in workloads))
    console.print()
    console.print(table)
    console.print()
    for line in remarks(cells):
        _print_line(console, cell(line))
    _print_line(console, cell(total_text(cells), "bold"))
    _print_line(console, _counts_line(results))


def print_plan(console: Console, title: str, sections: Mapping[str, str | Sequence[str]]) -> None:
    """What a drill would do: a title, then named texts, or named lists of lines."""
    console.print(cell(title, "bold"))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, content in sections.items():
        lines = [content] if isinstance(content, str) else list(content)
        for index, line in enumerate(lines or ["-"]):
            table.add_row(cell(name if index == 0 else ""), cell(line))
    console.print(Padding(table, (1, 0, 0, 2)))


def _checks_table(checks: Iterable[CheckResult]) -> Table:
    table = _table("check", "verdict", "what was found")
    table.columns[0].no_wrap = True
    table.columns[1].no_wrap = True
    for alike in _alike(checks):
        first = alike[0]
        detail = cell(first.detail)
        if first.mend and first.verdict is not Verdict.PASS:
            detail = Text.assemble(detail, "\n", ("mend: ", "bold cyan"), cell(first.mend))
        if len(alike) > 1:
            detail = Text.assemble(detail, "\n", cell(", ".join(check.name for check in alike), "dim"))
        name = first.name if len(alike) == 1 else count_text(len(alike), "check")
        table.add_row(cell(name), verdict_text(first.verdict), detail)
    return table


def _alike(checks: Iterable[CheckResult]) -> list[list[CheckResult]]:
    """The checks in their order; those that know nothing, and say so in the same words, stand together: a drill that
    left no dump would else say it ten times."""
    found: dict[tuple[str, str], list[CheckResult]] = {}
    for check in checks:
        key = (check.detail, check.mend) if check.verdict is Verdict.UNKNOWN else (check.name, "")
        found.setdefault(key, []).append(check)
    return list(found.values())


def _ranks_table(rows: Sequence[RankRow]) -> Table:
    """Columns of which nothing is known are left out."""
    columns = {
        "dump": [cell(row.dump, "bold red" if row.dump == MISSING else "") for row in rows],
        "last operation": [cell(row.last_operation) for row in rows],
        "stands at": [cell(row.place) for row in rows],
    }
    known = {name: cells for name, cells in columns.items() if any(one.plain for one in cells)}
    table = _table("rank", "state", *known)
    table.columns[0].justify = "right"
    table.columns[1].no_wrap = True
    for index, row in enumerate(rows):
        table.add_row(
            cell(str(row.rank)), state_text(row.state, row.fault), *(cells[index] for cells in known.values())
        )
    return table


def _verdict_line(result: DrillResult) -> Text:
    counts = [
        f"{count} {word}"
        for verdict, word in COUNT_WORDS
        if (count := sum(check.verdict is verdict for check in result.checks))
    ]
    took = f" in {result.timings.total_s:.1f} s" if result.timings.total_s is not None else ""
    checks = f"checks: {', '.join(counts)}" if counts else "no check"
    return Text.assemble(verdict_text(result.verdict), "  ", cell(f"{result.scenario}{took}; {checks}"))


def _counts_line(results: Sequence[DrillResult]) -> Text:
    """ "3 drills   PASS 1   FAIL 1   UNKNOWN 1"; words without a drill are dim."""
    parts = [Text(count_text(len(results), "drill"))]
    for verdict in Verdict:
        count = sum(result.verdict is verdict for result in results)
        word = verdict_text(verdict) if count else Text.assemble((verdict.value.upper(), "dim"))
        parts.append(Text.assemble(word, f" {count}"))
    return Text("   ").join(parts)


def _reason(result: DrillResult) -> Text:
    """The sentence of a drill that passed; else the checks that did not, and the words of the one that says most."""
    troubled = [check for check in result.checks if check.verdict is result.verdict]
    if result.verdict is Verdict.UNKNOWN:
        troubled.sort(key=lambda check: check.name != "culprit")
    if result.verdict is Verdict.PASS or not troubled:
        return cell(result.sentence)
    first = troubled[0]
    others = list_text([check.name for check in troubled[1:]], most=3)
    return cell(f"{first.name}: {first.detail}" + (f"; also {others}" if others else ""))


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="dim", border_style="dim")
    for name in names:
        table.add_column(cell(name), overflow="fold")
    return table


def _broken_at_hyphen(name: str) -> str:
    """The heading of a narrow column: "tensor-", then "parallel"."""
    return "-\n".join(name.rsplit("-", maxsplit=1))


def _coloured(text: str) -> Text:
    """Coloured by the worst word in it."""
    style = next((style for word, style in CELL_STYLES.items() if word.value in text), "")
    return cell(text, style)


def _print_line(console: Console, text: Text) -> None:
    """One paragraph, with the margin that the tables have; on one line, however long, where nobody looks at columns."""
    console.print(Text.assemble(" ", text) if console.soft_wrap else Padding(text, (0, 1)))
