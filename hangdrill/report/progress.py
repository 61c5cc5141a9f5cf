"""Who watches a drill while it runs: the Listener protocol, one that ignores everything, and `watching`, which chooses.

Imports no rich by itself: drills that nobody watches start without it. Listeners may be called from several threads.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hangdrill.model.run import DrillResult

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Listener", "NoopListener", "watching"]


class Listener(Protocol):
    """What a drill tells while it runs. It must not fail and must not block."""

    def phase(self, name: str, detail: str = "") -> None:
        """The drill has come to this phase."""

    def rank(self, rank: int, state: str, detail: str = "") -> None:
        """A rank's state has changed: starting, running, held, waiting, dumped or gone."""

    def note(self, text: str) -> None:
        """Something that the user may want to know, in a sentence."""

    def finished(self, result: DrillResult, run_dir: Path) -> None:
        """The drill is over and judged."""


class NoopListener:
    """Ignores everything."""

    def phase(self, name: str, detail: str = "") -> None:
        """Nothing."""

    def rank(self, rank: int, state: str, detail: str = "") -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def finished(self, result: DrillResult, run_dir: Path) -> None:
        """Nothing."""


@contextmanager
def watching(console: "Console", *, total: int) -> Iterator[Callable[[str], Listener]]:
    """A listener for each of `total` drills by name: a live display in a terminal, plain lines when piped.

    The display is gone when the block is left, so that tables can be printed after it.
    """
    if console.is_terminal and not console.is_dumb_terminal:
        from hangdrill.report.live import LiveDisplay

        with LiveDisplay(console, total=total) as display:
            yield display.listener
        return
    from hangdrill.report.plain import PlainListener

    yield lambda name: PlainListener(console, name if total > 1 else "")
