"""The bar of `hangdrill diagnose` while dumps are read: on a terminal, from one second on, and gone when it is over."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hangdrill.readers import Progress, no_progress

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["reading_bar"]

PATIENCE_S = 1.0
"""What takes less needs no bar."""
REFRESH_S = 0.1


@contextmanager
def reading_bar(
    console: "Console", *, is_wanted: bool = True, clock: Callable[[], float] = time.monotonic
) -> Iterator[Progress]:
    """What readers are to call. Nothing is written unless the console is a terminal."""
    if not is_wanted or not console.is_terminal or console.is_dumb_terminal:
        yield no_progress
        return
    bar = _Bar(console, clock)
    try:
        yield bar.tell
    finally:
        bar.close()


class _Bar:
    """Adds up the incidents of a command: each reading counts from one."""

    def __init__(self, console: "Console", clock: Callable[[], float]) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._progress = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stderr=False,
            redirect_stdout=False,
        )
        self._task = self._progress.add_task("looking for dumps", total=None)
        self._clock = clock
        self._told_s = -REFRESH_S
        self._last = (0, 0)
        self._before = (0, 0)
        self._lock = threading.Lock()
        self._is_over = False
        self._timer = threading.Timer(PATIENCE_S, self._show)
        self._timer.daemon = True
        self._timer.start()

    def tell(self, done: int, total: int) -> None:
        """So many of so many are read."""
        if done <= self._last[0]:
            self._before = (self._before[0] + self._last[0], self._before[1] + self._last[1])
        self._last = (done, total)
        now_s = self._clock()
        if done < total and now_s - self._told_s < REFRESH_S:
            return
        self._told_s = now_s
        self._progress.update(
            self._task,
            description="reading dumps",
            completed=self._before[0] + done,
            total=self._before[1] + total,
        )

    def close(self) -> None:
        """Take it away."""
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            self._progress.stop()

    def _show(self) -> None:
        with self._lock:
            if not self._is_over:
                self._progress.start()
