"""The live display of `hangdrill run` in a terminal: the phase with the time that has passed, and a row a rank.

With several drills at once, one compact row a drill. All listeners of a display share one rich.Live, which is started
by `LiveDisplay.__enter__` and always stopped by `__exit__`, so that the cursor comes back whatever happens.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from hangdrill.model.run import DrillResult
from hangdrill.report.cells import cell
from hangdrill.report.style import RANK_STYLES, state_text, verdict_text

__all__ = ["LiveDisplay", "LiveListener"]

REFRESHES_PER_SECOND = 8
FINISHED_ROWS_KEPT = 8
"""Of many drills, the last finished ones stay in view; all are in the summary that follows."""


class LiveListener:
    """One drill's part of the display: it keeps what was told last."""

    def __init__(self, name: str, lock: threading.RLock, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._lock = lock
        self._clock = clock
        self._started_s = clock()
        self._ended_s: float | None = None
        self._phase = ("plan", "")
        self._ranks: dict[int, tuple[str, str]] = {}
        self._notes: list[str] = []
        self._result: DrillResult | None = None
        self._spinner = Spinner("dots", style="cyan")

    def phase(self, name: str, detail: str = "") -> None:
        """Replaces the phase before it."""
        with self._lock:
            self._phase = (name, detail)

    def rank(self, rank: int, state: str, detail: str = "") -> None:
        """Replaces what was known of the rank."""
        with self._lock:
            self._ranks[rank] = (state, detail)

    def note(self, text: str) -> None:
        """Stays in view until the drill is over."""
        with self._lock:
            self._notes.append(text)

    def finished(self, result: DrillResult, run_dir: Path) -> None:
        """From now on the row shows the verdict."""
        with self._lock:
            self._result = result
            self._ended_s = self._clock()

    @property
    def is_finished(self) -> bool:
        """Whether the drill is over."""
        return self._result is not None

    def large(self) -> RenderableType:
        """The only drill: its phase, a row a rank, its notes."""
        with self._lock:
            table = Table.grid(padding=(0, 2))
            for rank, (state, detail) in sorted(self._ranks.items()):
                table.add_row(cell(f"  rank {rank}"), state_text(state, detail))
            notes = [cell(f"  note: {text}") for text in self._notes]
            return Group(self._headline(), table, *notes)

    def compact(self) -> tuple[RenderableType, ...]:
        """One of several drills: name, time, phase or verdict, and its ranks as a count of each state."""
        with self._lock:
            name = _on_one_line(self.name)
            elapsed = Text(f"{self._elapsed_s():.1f} s", style="dim")
            if self._result is not None:
                told = _on_one_line(self._result.sentence)
                return name, elapsed, verdict_text(self._result.verdict), told
            return name, elapsed, cell(self._phase[0]), self._counts()

    def _headline(self) -> RenderableType:
        name, detail = self._phase
        parts = [cell(f"{self.name}  ", "bold"), cell(f"{self._elapsed_s():.1f} s  ", "dim")]
        if self._result is not None:
            return Text.assemble(*parts, verdict_text(self._result.verdict))
        self._spinner.update(text=Text.assemble(*parts, cell(name), cell(f"  {detail}" if detail else "", "dim")))
        return self._spinner

    def _counts(self) -> Text:
        """ "2 waiting  1 held"."""
        states = [state for state, _ in self._ranks.values()]
        known = [state for state in RANK_STYLES if state in states]
        return Text("  ").join(Text.assemble((f"{states.count(state)} {state}", RANK_STYLES[state])) for state in known)

    def _elapsed_s(self) -> float:
        return (self._clock() if self._ended_s is None else self._ended_s) - self._started_s


class LiveDisplay:
    """The display of one call of `hangdrill run`. `listener(name)` gives a drill its part of it."""

    def __init__(self, console: Console, *, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.RLock()
        self._total = total
        self._clock = clock
        self._listeners: list[LiveListener] = []
        self._live = Live(
            self, console=console, refresh_per_second=REFRESHES_PER_SECOND, transient=True, redirect_stderr=False
        )

    def listener(self, name: str) -> LiveListener:
        """A new drill's listener."""
        listener = LiveListener(name, self._lock, self._clock)
        with self._lock:
            self._listeners.append(listener)
        return listener

    def __enter__(self) -> "LiveDisplay":
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            listeners = list(self._listeners)
        if self._total == 1:
            yield from (listener.large() for listener in listeners)
            return
        yield self._table(listeners)

    def _table(self, listeners: list[LiveListener]) -> RenderableType:
        running = [listener for listener in listeners if not listener.is_finished]
        finished = [listener for listener in listeners if listener.is_finished]
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for listener in (*finished[-FINISHED_ROWS_KEPT:], *running):
            table.add_row(*listener.compact())
        waiting = self._total - len(listeners)
        line = f"{len(finished)} of {self._total} drills over, {len(running)} running, {waiting} to come"
        return Group(table, Text.assemble((line, "dim")))


def _on_one_line(text: str) -> Text:
    found = cell(text)
    found.overflow, found.no_wrap = "ellipsis", True
    return found
