"""`hangdrill diagnose` for people: the sentence, who is stuck where, who is missing, and what to look at next."""

from collections.abc import Iterator

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hangdrill.checks.words import count_text, ranks_text
from hangdrill.diagnosis import sentence
from hangdrill.model.diagnosis import Basis, Diagnosis, HangVerdict, RankRoll
from hangdrill.report.sentence import operation_text
from hangdrill.report.style import hang_text

__all__ = ["print_diagnosis"]

Rows = Iterator[tuple[str, str]]


def print_diagnosis(console: Console, diagnosis: Diagnosis, said: str = "") -> None:
    """Everything that the diagnosis says; its own sentence first, or the one given."""
    console.print(Text.assemble(hang_text(diagnosis.verdict), f"  {said or sentence(diagnosis)}"))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _rows(diagnosis):
        table.add_row(name, Text(text))
    console.print(Padding(table, (1, 0, 0, 2)))


def _rows(diagnosis: Diagnosis) -> Rows:
    if diagnosis.kind is not None:
        yield "kind", diagnosis.kind.value
    for culprit in diagnosis.culprits:
        basis = "" if culprit.basis is Basis.OBSERVED else " (inferred, not observed)"
        yield "culprit", f"rank {culprit.rank}{basis}: {culprit.why}"
    if diagnosis.stuck is not None:
        stuck = diagnosis.stuck
        yield "stuck in", f"{operation_text(stuck)} ({ranks_text(stuck.group.ranks)})"
        yield "waiting", ranks_text(stuck.waiting)
        yield "absent", ranks_text(stuck.absent)
    yield from _roll(diagnosis.ranks)
    for note in diagnosis.notes:
        yield "note", note
    yield "look next at", _next_step(diagnosis)


def _roll(roll: RankRoll) -> Rows:
    total = f" of {roll.expected}" if roll.expected is not None else ""
    yield "dumps", f"{len(roll.present)}{total}"
    named = {"missing": roll.missing, "stale": roll.stale, "duplicate": roll.duplicate, "empty": roll.empty}
    for name, ranks in named.items():
        if ranks:
            yield name, ranks_text(ranks)
    for bad in roll.unreadable:
        whose = f"rank {bad.rank}, " if bad.rank is not None else ""
        saved = f"; {count_text(bad.salvaged_entries, 'operation')} salvaged" if bad.salvaged_entries else ""
        yield "unreadable", f"{whose}{bad.file}: {bad.error}{saved}"


def _next_step(diagnosis: Diagnosis) -> str:
    """Where a person looks now."""
    if diagnosis.verdict is HangVerdict.NO_HANG:
        return "the stacks and the data loader, if the job does hang: nothing is pending in torch.distributed"
    if diagnosis.culprits:
        ranks = ranks_text(culprit.rank for culprit in diagnosis.culprits)
        return f"the stacks and the log of {ranks}, and the host"
    if diagnosis.ranks.missing:
        return f"the logs of {ranks_text(diagnosis.ranks.missing)}, whose dumps are missing"
    return "the GPUs, the network and the stacks of all ranks: the recorder has no more to say"
