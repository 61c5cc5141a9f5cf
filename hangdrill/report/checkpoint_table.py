"""The pair table of checkpoints: one row for who saved, one column for who restores, and why a cell is no "yes"."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hangdrill.model.receipt import CheckpointOutcome, CheckpointPair
from hangdrill.report.style import AMBER

__all__ = ["cell_word", "pairs_markdown", "print_pairs", "reasons"]

WORDS = {
    CheckpointOutcome.EQUAL: "yes",
    CheckpointOutcome.UNEQUAL: "NO: not equal",
    CheckpointOutcome.REFUSED: "NO",
    CheckpointOutcome.FAILED: "failed",
    CheckpointOutcome.HUNG: "NO: hung",
    CheckpointOutcome.CRASHED: "NO: crashed",
    CheckpointOutcome.DAMAGED: "damaged",
    CheckpointOutcome.PARTIAL: "partial",
    CheckpointOutcome.UNKNOWN: "unknown",
}


def stacks_of(pairs: Sequence[CheckpointPair]) -> tuple[str, ...]:
    """In the order in which they saved, then those that only restored."""
    return tuple(dict.fromkeys([row.saved_by for row in pairs] + [row.restored_by for row in pairs]))


def cell_word(rows: Sequence[CheckpointPair]) -> str:
    """One word where all layouts and modes came to the same, else a word for each that is no "yes"."""
    words = {_variant(row): _word(row) for row in rows}
    if not words:
        return "not tried"
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return ", ".join(f"{name}: {word}" for name, word in words.items() if word != WORDS[CheckpointOutcome.EQUAL])


def reasons(pairs: Iterable[CheckpointPair]) -> tuple[str, ...]:
    """Why each cell that is no "yes" is none; equal reasons of one cell are told once."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in pairs:
        if row.outcome is not CheckpointOutcome.EQUAL:
            found.setdefault((row.saved_by, row.restored_by, _plain(row.detail)), []).append(_variant(row))
    return tuple(f"{by} -> {to} ({', '.join(variants)}): {detail}" for (by, to, detail), variants in found.items())


def pairs_markdown(pairs: Sequence[CheckpointPair]) -> str:
    """The table and its reasons as Markdown."""
    stacks = stacks_of(pairs)
    lines = [
        f"| saved by | {' | '.join(f'restored by {stack}' for stack in stacks)} |",
        "|---" * (len(stacks) + 1) + "|",
    ]
    lines += [f"| {by} | {' | '.join(cell_word(_rows(pairs, by, to)) for to in stacks)} |" for by in stacks]
    return "\n".join([*lines, "", *(f"- {reason}" for reason in reasons(pairs))]).rstrip() + "\n"


def print_pairs(console: Console, pairs: Sequence[CheckpointPair]) -> None:
    """The table, then the reasons."""
    stacks = stacks_of(pairs)
    table = Table("saved by", *(f"restored by {stack}" for stack in stacks), show_edge=False, pad_edge=False)
    for by in stacks:
        table.add_row(by, *(_coloured(_rows(pairs, by, to)) for to in stacks))
    console.print(table)
    for reason in reasons(pairs):
        console.print(Text(reason), soft_wrap=True)


def _coloured(rows: Sequence[CheckpointPair]) -> Text:
    outcomes = {row.outcome for row in rows}
    if outcomes == {CheckpointOutcome.EQUAL}:
        style = "bold green"
    else:
        style = f"bold {AMBER}" if outcomes <= {CheckpointOutcome.EQUAL, CheckpointOutcome.UNKNOWN} else "bold red"
    return Text(cell_word(rows), style=style)


def _word(row: CheckpointPair) -> str:
    return f"{WORDS[row.outcome]}{' (one-way)' if row.one_way else ''}"


def _variant(row: CheckpointPair) -> str:
    return row.layout if row.layout == "script" else f"{row.layout} {row.mode}"


def _plain(detail: str) -> str:
    """Without the names of the checkpoint's own directory, in which the reasons of layouts and modes differ."""
    return " ".join(
        "..." if word.startswith("'/") and word.rstrip("'").endswith(".metadata") else word for word in detail.split()
    )


def _rows(pairs: Sequence[CheckpointPair], saved_by: str, restored_by: str) -> list[CheckpointPair]:
    return [row for row in pairs if (row.saved_by, row.restored_by) == (saved_by, restored_by)]
