"""Progress is plain lines when piped and a display in a terminal; several drills are told apart; threads may mix."""

import io
from concurrent.futures import ThreadPoolExecutor

import pytest
from rich.console import Console
from sample_results import passed_run, result_of

from hangdrill.report.live import LiveDisplay, LiveListener
from hangdrill.report.plain import PlainListener
from hangdrill.report.progress import NoopListener, watching


class Clock:
    """A clock that the test sets."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def a_console(**options):
    return Console(file=io.StringIO(), width=100, color_system=None, highlight=False, **options)


def shown(display):
    console = a_console()
    console.print(display)
    return console.file.getvalue()


def tell(listener):
    listener.phase("confirmed", "rank 1")
    listener.rank(1, "held", "stop")
    listener.rank(0, "waiting")
    listener.note("the collector is slow")


def test_plain_lines_have_the_time_and_the_words():
    console, clock = a_console(), Clock()
    listener = PlainListener(console, clock=clock)
    clock.now_s += 4.2
    tell(listener)
    listener.finished(result_of(passed_run()), "/runs")
    assert console.file.getvalue().splitlines() == [
        "   4.2 s  confirmed: rank 1",
        "   4.2 s  rank 1 held (stop)",
        "   4.2 s  rank 0 waiting",
        "   4.2 s  note: the collector is slow",
        "   4.2 s  PASS: rank 1 never entered all_reduce #4 of default_pg; ranks 0, 2, 3 waited 5.0 s;"
        " held at train.py:42",
    ]


def test_piped_output_is_plain_and_named_when_there_are_several_drills():
    console = a_console()
    with watching(console, total=2) as listener_for:
        listener_for("quick/ddp-hold").phase("launch")
    assert console.file.getvalue().startswith("quick/ddp-hold     0.0 s  launch")


def test_terminal_gets_the_live_display_and_gets_its_cursor_back():
    console = a_console(force_terminal=True)
    with watching(console, total=1) as listener_for:
        listener = listener_for("quick/ddp-hold")
        assert isinstance(listener, LiveListener)
        tell(listener)
    hidden, back = console.file.getvalue().rfind("\x1b[?25l"), console.file.getvalue().rfind("\x1b[?25h")
    assert -1 < hidden < back


def test_display_is_ended_when_the_drill_is_interrupted():
    console = a_console(force_terminal=True)
    with pytest.raises(KeyboardInterrupt), watching(console, total=1):
        raise KeyboardInterrupt
    assert console.file.getvalue().rfind("\x1b[?25h") > -1


def test_only_drill_has_a_row_a_rank():
    clock = Clock()
    display = LiveDisplay(a_console(), total=1, clock=clock)
    listener = display.listener("quick/ddp-hold")
    clock.now_s += 5.2
    tell(listener)
    lines = [" ".join(line.split()) for line in shown(display).splitlines()]
    assert lines[0].endswith("quick/ddp-hold 5.2 s confirmed rank 1")
    assert lines[1:] == ["rank 0 waiting", "rank 1 held (stop)", "note: the collector is slow"]


def test_several_drills_have_a_row_each_and_the_time_stops_at_the_end():
    clock = Clock()
    display = LiveDisplay(a_console(), total=3, clock=clock)
    first, second = display.listener("quick/ddp-hold"), display.listener("quick/fsdp2-hold")
    tell(second)
    clock.now_s += 9.8
    first.finished(result_of(passed_run()), "/runs")
    clock.now_s += 1
    lines = [" ".join(line.split()) for line in shown(display).splitlines()]
    assert lines[0].startswith("quick/ddp-hold 9.8 s PASS rank 1 never entered")
    assert lines[1:] == [
        "quick/fsdp2-hold 10.8 s confirmed 1 held 1 waiting",
        "1 of 3 drills over, 1 running, 1 to come",
    ]


def test_listeners_may_be_called_from_many_threads():
    console = a_console()
    listeners = [PlainListener(console, f"drill-{index}") for index in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda listener: [listener.rank(rank, "running") for rank in range(20)], listeners))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 160
    assert all(line.endswith("running") and line.startswith("drill-") for line in lines)


def test_noop_listener_says_nothing(capsys):
    listener = NoopListener()
    tell(listener)
    listener.finished(result_of(passed_run()), "/runs")
    assert capsys.readouterr() == ("", "")
