"""The numbers of a measured line, each told once: what its detail says of them too is left out of the detail.

The two sides are called as the detail calls them: a cell may compare two implementations of one stack.
"""

import re
from statistics import median

from hangdrill.model.receipt import Line

__all__ = ["number_text", "numbers_of", "remark_of"]

SIDES = ("baseline", "candidate")
LOST = re.compile(r"runs without this measure: (\S+) \d+, (\S+) \d+")


def numbers_of(line: Line) -> tuple[tuple[str, str], ...]:
    """(name, text) of both medians, their ratio, its interval, and how many pairs there are; () without samples."""
    if not line.candidate:
        return ()
    old, new = _names(line)
    numbers = [(old, _amount(line.baseline, line.unit))] if line.baseline else []
    numbers.append((new, _amount(line.candidate, line.unit)))
    if line.ratio is not None:
        numbers.append(("ratio", number_text(line.ratio)))
    if line.interval is not None:
        numbers.append(("interval", f"{number_text(line.interval[0])} to {number_text(line.interval[1])}"))
    pairs, runs = len(line.baseline), len(line.candidate)
    numbers.append(("pairs", str(pairs)) if pairs == runs else ("runs", f"{pairs} and {runs}" if pairs else str(runs)))
    return tuple(numbers)


def remark_of(line: Line) -> str:
    """The detail without the numbers that `numbers_of` gives; the whole of it where it begins in another way."""
    found = _said(line)
    return line.detail if found is None else line.detail[found.end() :]


def number_text(value: float) -> str:
    """Four digits, without an exponent where it can be read without one."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _amount(samples: tuple[float, ...], unit: str) -> str:
    return f"{number_text(median(samples))} {unit}".rstrip()


def _names(line: Line) -> tuple[str, str]:
    found = _said(line) or LOST.match(line.detail)
    return (found[1], found[2]) if found is not None else SIDES


def _said(line: Line) -> "re.Match[str] | None":
    """Where a detail says these very samples: "baseline 1 s, candidate 2 s, 8 pairs; ratio 2 [2, 2]"."""
    if not line.baseline or not line.candidate:
        return None
    old, new = (re.escape(f"{median(side):.4g} {line.unit}") for side in (line.baseline, line.candidate))
    ratio = ""
    if line.ratio is not None and line.interval is not None:
        low, high = line.interval
        ratio = f"(?:; {re.escape(f'ratio {line.ratio:.3g} [{low:.3g}, {high:.3g}]')})?"
    return re.match(rf"(\S+) {old}, (\S+) {new}, {len(line.baseline)} pairs{ratio}(?:; |$)", line.detail)
