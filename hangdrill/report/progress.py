"""What a drill tells those who watch it, while it runs; and a listener that does not listen."""

from pathlib import Path
from typing import Protocol

from hangdrill.model.run import DrillResult

__all__ = ["Listener", "NoopListener"]


class Listener(Protocol):
    """Told of everything that happens in one drill. It must not fail and must not block."""

    def phase(self, name: str, detail: str = "") -> None:
        """The drill enters a phase."""

    def rank(self, rank: int, state: str, detail: str = "") -> None:
        """A rank's state changed: starting, running, held, waiting, dumped or gone."""

    def note(self, text: str) -> None:
        """Something the user may want to know, in a sentence."""

    def finished(self, result: DrillResult, run_dir: Path) -> None:
        """The drill is judged."""


class NoopListener:
    """Listens to nothing."""

    def phase(self, name: str, detail: str = "") -> None:
        pass

    def rank(self, rank: int, state: str, detail: str = "") -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def finished(self, result: DrillResult, run_dir: Path) -> None:
        pass
