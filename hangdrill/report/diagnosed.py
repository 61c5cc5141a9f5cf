"""`hangdrill diagnose` for people: the sentence, who is stuck where, the time around it, what is missing, what is next.

It prints a Story, and nothing else: text out of a dump cannot move the cursor, fill the screen or be read as markup.
"""

from collections.abc import Iterable, Iterator

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hangdrill.checks.words import ranks_text
from hangdrill.diagnosis import sentence
from hangdrill.model.diagnosis import Basis, Diagnosis
from hangdrill.report.cells import cell
from hangdrill.report.story import Story, seconds_text, shown, tell_story
from hangdrill.report.story.ranks import label_of
from hangdrill.report.story.values import Gap, Role, StuckRow, TimelineRow
from hangdrill.report.style import RANK_STYLES, hang_text

__all__ = ["print_diagnosis"]

Rows = Iterator[tuple[str, str | Text]]

MOST_ROWS = 16
MOST_MARKS = 3
"""So many last operations of a rank are printed; the page has more."""


def print_diagnosis(console: Console, diagnosis: Diagnosis, said: str = "", story: Story | None = None) -> None:
    """Everything that the diagnosis says; its own sentence first, or the one given. story: with the dumps, it also
    says the line that each rank waits at, and the time around the stall."""
    story = story or tell_story(diagnosis)
    _print_sentence(console, hang_text(diagnosis.verdict), cell(shown(said or sentence(diagnosis), 2_000)))
    _print_rows(console, _summary(diagnosis, story))
    if any(row.operation for row in story.stuck):
        _print_table(console, "where each rank stands", _stuck_table(story))
    if story.timeline.rows:
        _print_table(console, f"around the stall, from when {story.timeline.zero}", _timeline_table(story))
    _print_rows(console, _rest(story))


def _summary(diagnosis: Diagnosis, story: Story) -> Rows:
    if story.kind:
        yield "kind", story.kind
    for culprit in story.culprits:
        basis = "" if culprit.basis == Basis.OBSERVED.value else " (inferred, not observed)"
        each = ", each" if len(culprit.ranks) > 1 else ""
        yield "culprit", f"{ranks_text(culprit.ranks)}{each}{basis}: {culprit.why}"
    if diagnosis.stuck is not None:
        yield "stuck in", f"{story.operation} ({story.group_ranks})"
        yield "waiting", ranks_text(diagnosis.stuck.waiting)
        absent = set(diagnosis.stuck.absent)
        inferred = {one.rank for one in diagnosis.culprits if one.basis is Basis.INFERRED} & absent
        yield "absent", ranks_text(absent) + (" (inferred)" if inferred and inferred == absent else "")


def _rest(story: Story) -> Rows:
    yield "dumps", story.dumps
    for gap in story.gaps:
        yield gap.word, _gap_text(gap)
    for note in story.notes:
        yield "note", note
    for index, step in enumerate(story.next_steps):
        yield "look next at" if index == 0 else "", step


def _gap_text(gap: Gap) -> Text:
    what = ", ".join(part for part in (ranks_text(gap.ranks) if gap.ranks else "", gap.detail) if part)
    return Text.assemble(cell(what), "\n", ("would have told: ", "dim"), cell(gap.told))


def _stuck_table(story: Story) -> Table:
    has_lines = any(row.place.text for row in story.stuck)
    table = _table("ranks", "state", "operation", *(["line"] if has_lines else []), "entered")
    for row in story.stuck[:MOST_ROWS]:
        line = [cell(row.place.text)] if has_lines else []
        table.add_row(cell(label_of(row.ranks)), _state(row), cell(_operation(row)), *line, cell(_since(row)))
    _add_rest(table, len(story.stuck) - MOST_ROWS + story.stuck_hidden, "row")
    return table


def _state(row: StuckRow) -> Text:
    word = row.role.value or "culprit"
    style = RANK_STYLES.get(word, "bold red" if row.is_culprit else "default")
    return Text.assemble((f"{word}, inferred" if row.inferred else word, style))


def _operation(row: StuckRow) -> str:
    if not row.has_dump:
        return "no dump"
    last = ""
    if row.role is Role.ABSENT and row.operation:
        last = "last in its dump: " if row.inferred else "after "
    return f"{last}{row.operation or 'none in its dump'}"


def _since(row: StuckRow) -> str:
    if row.after_s is None:
        return ""
    low, high = (seconds_text(one) for one in row.after_s)
    return low if low == high else f"{low} to {high}"


def _timeline_table(story: Story) -> Table:
    table = _table("ranks", "last operations")
    for row in story.timeline.rows[:MOST_ROWS]:
        table.add_row(cell(label_of(row.ranks)), _marks(row))
    _add_rest(table, sum(len(row.ranks) for row in story.timeline.rows[MOST_ROWS:]) + story.timeline.hidden, "rank")
    return table


def _marks(row: TimelineRow) -> Text:
    """ "−8.03 ms all_reduce #53, −2.88 ms all_reduce #54": up to the first that is pending; the group is said where it
    changes."""
    parts: list[str | tuple[str, str]] = []
    group = ""
    end = next((index + 1 for index, mark in enumerate(row.marks) if mark.pending), len(row.marks))
    for mark in row.marks[max(0, end - MOST_MARKS) : end]:
        name, _, own = mark.label.partition(" of ")
        said = mark.label if own != group else name
        parts += [", "] if parts else []
        parts.append((f"{seconds_text(mark.at_s)} ", "cyan"))
        parts.append((f"{said} pending", RANK_STYLES["waiting"]) if mark.pending else said)
        group = own
    if end < len(row.marks):
        parts.append((f", and {len(row.marks) - end} more behind it", "dim"))
    return Text.assemble(*parts)


def _add_rest(table: Table, count: int, noun: str) -> None:
    if count > 0:
        table.add_row(cell(f"{count} more {noun}{'s' if count > 1 else ''}"), style="dim")


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="dim", border_style="dim", pad_edge=False)
    for name in names:
        table.add_column(cell(name), overflow="fold", no_wrap=name == "state")
    return table


def _print_sentence(console: Console, verdict: Text, said: Text) -> None:
    """Side by side; on one line, however long, where nobody looks at columns."""
    if console.soft_wrap:
        console.print(Text.assemble(verdict, "  ", said))
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(verdict, said)
    console.print(table)


def _print_table(console: Console, title: str, table: Table) -> None:
    heading = Text(title, style="cyan", overflow="fold", no_wrap=False)  # a Padding cuts what is not wrapped
    console.print(Padding(heading, (1, 0, 0, 2), expand=False))
    console.print(Padding(table, (0, 0, 0, 4), expand=False))


def _print_rows(console: Console, rows: Iterable[tuple[str, str | Text]]) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(cell(name), cell(text) if isinstance(text, str) else text)
    if table.row_count:
        console.print(Padding(table, (1, 0, 0, 2), expand=False))
