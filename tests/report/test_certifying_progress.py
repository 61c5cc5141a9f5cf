"""A certification of hours is never silent, and does not flood a log either."""

import io

from rich.console import Console

from hangdrill.report.certifying import PlainWatcher


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
