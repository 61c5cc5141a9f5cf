"""`hangdrill list` is one line a scenario in a pipe, and wraps below the title in a narrow terminal."""

from hangdrill.cli.look import LEAST_TITLE, _folded

HEAD = "quick/ddp-hold  "
TITLE = "One rank of four is held before a gradient all_reduce of DistributedDataParallel"


def test_a_pipe_gets_one_line():
    assert _folded(HEAD, TITLE, None) == HEAD + TITLE


def test_a_narrow_terminal_gets_the_rest_below_the_title():
    lines = _folded(HEAD, TITLE, 50).splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 50 for line in lines)
    assert all(line.startswith(" " * len(HEAD)) for line in lines[1:])
    assert " ".join(line[len(HEAD) :] for line in lines) == TITLE


def test_where_there_is_no_room_for_a_title_nothing_is_wrapped():
    assert _folded(HEAD, TITLE, len(HEAD) + LEAST_TITLE - 1) == HEAD + TITLE
