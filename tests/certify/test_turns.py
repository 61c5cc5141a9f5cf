"""Two jobs that take turns, as their ranks see it: threads in the place of the jobs."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hangdrill.rank.canary.record import Record
from hangdrill.rank.canary.turns import ALIVE, ENDED, FIRST, OVER, SECOND, SIDES, Turns

LIMIT_S = 60.0
SHORT_S = 0.02


def turns_of(directory: Path | None, side: str, *, rank: int = 0, limit_s: float = LIMIT_S, **more) -> Turns:
    return Turns(directory, side, rank=rank, limit_s=limit_s, **more)


def together(*actions) -> None:
    """Each in a thread of its own, to their ends."""
    threads = [threading.Thread(target=action, daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def blocks_of(directory, made, *, ranks=1, count=4, part="dp"):
    """One action for each rank of each side; `made` gets (side, number) from every rank of a block."""

    def act(side, rank):
        turns = turns_of(directory, side, rank=rank)
        turns.join()
        turns.open(part)
        for number in range(count):
            with turns.block(part, number):
                made.append((side, number))
        turns.close(part)
        assert (turns.together, turns.waited_s > 0) == (True, True)

    return [lambda side=side, rank=rank: act(side, rank) for side in SIDES for rank in range(ranks)]


def test_a_block_of_the_one_and_a_block_of_the_other_and_neither_is_always_second(tmp_path):
    made: list[tuple[str, int]] = []
    together(*blocks_of(tmp_path, made))
    order = [FIRST, SECOND, SECOND, FIRST, FIRST, SECOND, SECOND, FIRST]
    assert made == [(side, at // 2) for at, side in enumerate(order)]


def test_every_rank_waits_for_the_other_job(tmp_path):
    """Rank 0 may be done before its peers, which is why the blocks of one number are compared as sets."""
    made: list[tuple[str, int]] = []
    together(*blocks_of(tmp_path, made, ranks=2, count=6))
    firsts = {key: min(at for at, one in enumerate(made) if one == key) for key in made}
    for number in range(6):
        leader, follower = SIDES[number % 2], SIDES[1 - number % 2]
        assert firsts[(leader, number)] < firsts[(follower, number)]
    assert len(made) == 2 * 2 * 6


def test_a_part_that_failed_in_the_other_job_is_not_waited_for_and_the_next_one_is(tmp_path):
    first, second = turns_of(tmp_path, FIRST), turns_of(tmp_path, SECOND)
    second.leave("tp")
    first.open("tp")
    with first.block("tp", 1):
        pass
    first.close("tp")
    assert first.waited_s < LIMIT_S
    short = turns_of(tmp_path, FIRST, limit_s=SHORT_S)
    short.open("pp")
    assert short.waited_s >= SHORT_S


@pytest.mark.parametrize("how", ["over", "gone"])
def test_a_job_that_has_ended_or_was_started_again_is_not_waited_for(tmp_path, how):
    first, second = turns_of(tmp_path, FIRST), turns_of(tmp_path, SECOND)
    if how == "over":
        (tmp_path / f"{OVER}.{SECOND}").touch()
    else:
        second.end()
    first.join()
    first.open("dp")
    with first.block("dp", 1):
        pass
    first.close("dp")
    assert first.waited_s < LIMIT_S


def test_a_job_that_never_comes_is_given_up_and_as_many_steps_are_made_on_every_rank(tmp_path):
    """`together` decides how many steps there are: a rank that gave up must not make fewer than its peers."""
    turns = turns_of(tmp_path, SECOND, limit_s=SHORT_S)
    turns.open("dp")
    waited_s = turns.waited_s
    assert waited_s >= SHORT_S
    for number in range(100):
        with turns.block("dp", number):
            pass
    turns.close("dp")
    assert (turns.waited_s, turns.together) == (waited_s, True)


def test_all_waits_of_a_part_have_one_limit_so_that_a_slow_job_takes_no_time_from_the_other(tmp_path):
    """The time that a part may take is twice that limit: what is left is what it has alone."""
    turns = turns_of(tmp_path, FIRST)
    (tmp_path / f"dp.here.{SECOND}").touch()
    turns.open("dp")
    turns.waited_s += LIMIT_S  # for the blocks of a slow one
    before_s = turns.waited_s
    with turns.block("dp", 1):
        pass
    assert turns.waited_s - before_s < LIMIT_S


def test_all_waits_of_a_job_have_one_limit_too(tmp_path):
    """Its deadline is twice as long as that of a job alone: what is left is what it has alone."""
    turns = turns_of(tmp_path, SECOND, patience_s=3 * LIMIT_S)
    turns_of(tmp_path, FIRST).leave("dp")
    turns.open("dp")
    turns.waited_s += 3 * LIMIT_S
    before_s = turns.waited_s
    turns.open("tp")
    turns.part_ways()
    assert turns.waited_s - before_s < LIMIT_S


def test_once_one_rank_has_waited_in_vain_none_of_its_job_waits_any_more(tmp_path):
    turns_of(tmp_path, FIRST, rank=1, limit_s=SHORT_S).open("dp")
    peer, other = turns_of(tmp_path, FIRST), turns_of(tmp_path, SECOND, limit_s=SHORT_S)
    peer.open("dp")
    assert peer.waited_s < LIMIT_S
    other.open("pp")
    assert other.waited_s >= SHORT_S


WAITING = """
import sys
from pathlib import Path
from hangdrill.rank.canary.turns import SECOND, Turns
Turns(Path(sys.argv[1]), SECOND, rank=1, limit_s=60, patience_s=float(sys.argv[2])).part_ways()
"""


def ended_with(directory: Path, patience_s: float) -> int:
    """How a rank ends that waits for the end of a job that never ends."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", WAITING, str(directory), str(patience_s)]
    return subprocess.run(words, env=environ, check=False, timeout=120).returncode


def test_a_rank_that_waits_ends_once_hangdrill_was_killed_and_not_before(tmp_path):
    with (tmp_path / ALIVE).open("wb") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        assert ended_with(tmp_path, 2.5) == 0  # it gave up, and went on alone
    assert ended_with(tmp_path, 100.0) == ENDED
    assert ended_with(tmp_path / "removed-by-a-later-one", 100.0) == ENDED


def test_what_is_left_the_second_job_does_once_the_first_has_ended(tmp_path):
    order = []

    def second():
        turns = turns_of(tmp_path, SECOND)
        turns.part_ways()
        order.append("second")
        assert not turns.together

    def first():
        turns = turns_of(tmp_path, FIRST)
        turns.part_ways()
        assert not turns.together
        order.append("first")
        (tmp_path / f"{OVER}.{FIRST}").touch()  # hangdrill does

    together(second, first)
    assert order == ["first", "second"]


def test_without_another_job_nothing_is_written_and_nothing_waited_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    turns = turns_of(None, SECOND)
    assert not turns.together
    turns.join()
    turns.open("dp")
    with turns.block("dp", 0):
        pass
    turns.close("dp")
    turns.leave("dp")
    turns.part_ways()
    assert (turns.waited_s, list(tmp_path.iterdir())) == (0.0, [])


def test_no_part_pays_for_the_turns_of_the_other_job(tmp_path):
    record = Record.from_environment(tmp_path, {})
    waited_s = [5.0]
    record.waited_s = lambda: waited_s[0]
    with record.part("dp", limit_s=60):
        waited_s[0] += 1000.0
    assert record.measures["part_dp_s"] < 0
