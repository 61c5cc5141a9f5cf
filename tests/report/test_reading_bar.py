"""The bar of `hangdrill diagnose`: only on a terminal, only after a while, and gone when it is over."""

import io
import threading
from pathlib import Path

import pytest
from rich.console import Console

from hangdrill.cli import run_command
from hangdrill.report import reading

GLOO = Path(__file__).parents[1] / "data" / "dumps" / "gloo" / "hold-rank-1-of-3"
DEADLINE_S = 30.0


class Screen(io.StringIO):
    """A terminal that says when a text has come."""

    def __init__(self, awaited: str = "\0") -> None:
        super().__init__()
        self.awaited = awaited
        self.seen = threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        if self.awaited in self.getvalue():
            self.seen.set()
        return count


def console(screen: Screen, *, is_terminal: bool = True) -> Console:
    return Console(file=screen, force_terminal=is_terminal, width=100, color_system=None, _environ={"TERM": "xterm"})


def test_it_says_how_many_of_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PATIENCE_S", 0.0)
    screen = Screen("reading dumps  412/1024")
    with reading.reading_bar(console(screen)) as progress:
        progress(412, 1024)
        assert screen.seen.wait(DEADLINE_S)
    assert screen.getvalue().endswith("\x1b[2K")  # the line is wiped, for what is printed next


def test_the_incidents_of_one_command_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PATIENCE_S", 0.0)
    monkeypatch.setattr(reading, "REFRESH_S", 0.0)
    screen = Screen("reading dumps 3/7")
    with reading.reading_bar(console(screen)) as progress:
        for done, total in [(1, 2), (2, 2), (1, 5)]:
            progress(done, total)
        assert screen.seen.wait(DEADLINE_S)


def test_a_short_reading_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PATIENCE_S", DEADLINE_S)
    screen = Screen()
    with reading.reading_bar(console(screen)) as progress:
        progress(1, 2)
    assert screen.getvalue() == ""


@pytest.mark.parametrize(("is_terminal", "is_wanted"), [(False, True), (True, False)])
def test_pipes_and_programs_get_not_a_line(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, is_wanted: bool
) -> None:
    monkeypatch.setattr(reading, "PATIENCE_S", 0.0)
    screen = Screen()
    with reading.reading_bar(console(screen, is_terminal=is_terminal), is_wanted=is_wanted) as progress:
        assert progress is reading.no_progress
        progress(412, 1024)
    assert screen.getvalue() == ""


def test_the_command_writes_no_bar_into_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reading, "PATIENCE_S", 0.0)
    assert run_command(["diagnose", str(GLOO), "--json"]) == 1
    assert capsys.readouterr().err == ""
