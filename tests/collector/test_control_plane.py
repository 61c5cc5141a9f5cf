"""One request to one rank: an answer, or a cause why there is none, never a wait without an end."""

import os
import socket

import pytest
from fake_plane import BEHAVIOURS, FakeRank

from hangdrill.collector.control_plane import NoAnswer, RankSocket, Silence

CAUSES = {
    "silent": Silence.LATE,
    "slow": Silence.LATE,
    "half": Silence.CUT,
    "garbage": Silence.GARBLED,
    "status": Silence.REFUSED,
    "disappears": Silence.CUT,
    "endless": Silence.TOO_LARGE,
}


@pytest.fixture
def connect(sockets):
    descriptor = os.open(sockets, os.O_RDONLY | os.O_DIRECTORY)
    yield lambda rank=0: RankSocket(descriptor, f"rank_{rank}.a0.sock")
    os.close(descriptor)


def test_an_answer_is_its_body_and_parameters_arrive_escaped(sockets, connect):
    with FakeRank(sockets, 0, answers={"ping": b"pong"}) as rank:
        assert connect().post("ping", {"backend": "my nccl&x=1"}, deadline_s=5) == b"pong"
        assert rank.asked == ["/handler/ping?backend=my+nccl%26x%3D1"]


def test_the_listeners_pid_is_known_after_a_connection(sockets, connect):
    plane = connect()
    assert plane.pid is None
    with FakeRank(sockets, 0, answers={"ping": b"pong"}):
        plane.post("ping", deadline_s=5)
    assert plane.pid == os.getpid()


@pytest.mark.parametrize("behaviour", sorted(CAUSES))
def test_every_bad_answer_ends_with_its_cause(sockets, connect, behaviour):
    with FakeRank(sockets, 0, hostile={"ping": behaviour}), pytest.raises(NoAnswer) as caught:
        connect().post("ping", deadline_s=0.3, limit_bytes=200_000)
    assert caught.value.cause is CAUSES[behaviour]
    assert set(BEHAVIOURS) - {"lies"} == set(CAUSES)


def test_a_promise_beyond_the_limit_is_refused_before_it_is_read(sockets, connect):
    with FakeRank(sockets, 0, answers={"ping": b"x" * 1001}), pytest.raises(NoAnswer) as caught:
        connect().post("ping", deadline_s=5, limit_bytes=1000)
    assert (caught.value.cause, caught.value.detail) == (Silence.TOO_LARGE, "1001 bytes promised, 1000 allowed")


def test_an_answer_as_large_as_the_limit_is_taken(sockets, connect):
    with FakeRank(sockets, 0, answers={"ping": b"x" * 1000}):
        assert len(connect().post("ping", deadline_s=5, limit_bytes=1000)) == 1000


def test_a_handler_that_torch_does_not_have_is_told_by_its_status(sockets, connect):
    with FakeRank(sockets, 0), pytest.raises(NoAnswer) as caught:
        connect().post("hangdrill_dump", deadline_s=5)
    assert (caught.value.cause, caught.value.status) == (Silence.REFUSED, 404)


def test_no_socket_and_a_dead_ranks_socket_are_absent(sockets, connect):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(sockets / "rank_1.a0.sock"))
    dead.close()
    for rank in (0, 1):
        with pytest.raises(NoAnswer) as caught:
            connect(rank).post("ping", deadline_s=5)
        assert caught.value.cause is Silence.ABSENT


def test_a_full_queue_of_connections_is_late_and_not_a_wait(sockets, connect):
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(sockets / "rank_0.a0.sock"))
        deaf.listen(0)
        causes = []
        for _ in range(4):
            with pytest.raises(NoAnswer) as caught:
                connect().post("ping", deadline_s=0.05)
            causes.append(caught.value.cause)
    assert causes == [Silence.LATE] * 4


def test_a_directory_deeper_than_a_unix_address_is_reached(tmp_path):
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    descriptor = os.open(deep, os.O_RDONLY | os.O_DIRECTORY)
    before = os.getcwd()  # noqa: PTH109 - the text, unresolved
    os.chdir(deep)
    try:
        from pathlib import Path

        with FakeRank(Path(), 0, answers={"ping": b"pong"}):
            assert RankSocket(descriptor, "rank_0.a0.sock").post("ping", deadline_s=5) == b"pong"
    finally:
        os.chdir(before)
        os.close(descriptor)
