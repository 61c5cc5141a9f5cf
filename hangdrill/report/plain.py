"""Progress as plain lines, for a pipe or a log: one line an event, with the time since the drill began."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from hangdrill.model.run import DrillResult
from hangdrill.report.cells import cell
from hangdrill.report.style import rank_text, verdict_text

__all__ = ["PlainListener"]


class PlainListener:
    """name is put before each line when several drills share the output."""

    def __init__(self, console: Console, name: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._name = name
        self._clock = clock
        self._started_s = clock()
        self._lock = threading.Lock()

    def phase(self, name: str, detail: str = "") -> None:
        """ "   4.2 s  confirmed: rank 1"."""
        self._print(cell(f"{name}: {detail}" if detail else name))

    def rank(self, rank: int, state: str, detail: str = "") -> None:
        """ "   4.2 s  rank 1 held (stop)"."""
        self._print(rank_text(rank, state, detail))

    def note(self, text: str) -> None:
        """ "   4.2 s  note: ..."."""
        self._print(cell(f"note: {text}"))

    def finished(self, result: DrillResult, run_dir: Path) -> None:
        """ "   9.8 s  PASS: rank 1 never entered ..."."""
        told = f": {result.sentence}" if result.sentence else ""
        self._print(Text.assemble(verdict_text(result.verdict), cell(told)))

    def _print(self, text: Text) -> None:
        name = f"{self._name}  " if self._name else ""
        elapsed = (f"{self._clock() - self._started_s:6.1f} s  ", "dim")
        with self._lock:
            self._console.print(Text.assemble(cell(name), elapsed, text), soft_wrap=True)
