"""A certification of hours is never silent, and floods neither a log nor the reader at its end."""

import io
from pathlib import Path

import msgspec
from rich.console import Console
from sample_receipts import receipt

from hangdrill.model.receipt import Item, Line
from hangdrill.model.verdict import Verdict
from hangdrill.report.certifying import PlainWatcher, print_receipt


def test_a_long_cell_says_where_it_is_and_a_drill_does_not() -> None:
    now, text = [0.0], io.StringIO()
    watcher = PlainWatcher(Console(file=text, width=100), clock_s=lambda: now[0])
    watcher.begins("canary/stacks", "both stacks", 1, 2)
    for second, name, detail in (
        (1, "canary", "pair 1 of 8, baseline"),
        (11, "canary", "pair 1 of 8, candidate"),
        (15, "canary", "pair 2 of 8, candidate"),
        (40, "launch", "torchrun"),
        (41, "checkpoint", "baseline saves"),
    ):
        now[0] = float(second)
        watcher.phase(name, detail)
    told = [line.split("  ", 1)[1].strip() for line in (row.strip() for row in text.getvalue().splitlines()) if line]
    assert told == ["[1/2] canary/stacks  both stacks", "pair 1 of 8, candidate", "baseline saves"]


def test_lines_that_lack_the_same_are_told_once_and_first() -> None:
    def line(name: str, verdict: Verdict, detail: str) -> Line:
        return Line(id=name, item=Item.WORK, verdict=verdict, claim=f"claim of {name}", detail=detail)

    lines = [line("real", Verdict.FAIL, "slower"), *(line(f"out/{at}", Verdict.UNKNOWN, "left out") for at in range(9))]
    text = io.StringIO()
    made = msgspec.structs.replace(receipt(verdict=Verdict.FAIL), lines=tuple(lines))
    print_receipt(Console(file=text, width=60), made, Path("OUT"), signed=False)
    told = text.getvalue()
    assert told.count("left out") == 1
    assert all(f"out/{at}" in told for at in range(9))
    assert told.index("out/8") < told.index("claim of real")
    assert all(row.startswith(" ") for row in told.splitlines() if row)
