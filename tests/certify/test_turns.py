"""Two jobs that take turns, as their ranks see it: threads in the place of the jobs."""

import threading
from pathlib import Path

import pytest

from hangdrill.rank.canary.record import Record
from hangdrill.rank.canary.turns import FIRST, OVER, SECOND, SIDES, Turns

LIMIT_S = 60.0
SHORT_S = 0.02


def turns_of(directory: Path | None, side: str, *, rank: int = 0, limit_s: float = LIMIT_S) -> Turns:
    return Turns(directory, side, rank=rank, limit_s=limit_s)


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
