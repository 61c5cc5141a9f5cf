"""What is asked of a rank: the recorders that answered, and every candidate while only gloo's did."""

import pytest
from fake_plane import operation, trace

from hangdrill.collector.control import RankKey
from hangdrill.collector.ranks import WatchedRank
from hangdrill.collector.sources import sources_of
from hangdrill.collector.traces import read_trace


@pytest.mark.parametrize(
    ("answered", "asked"),
    [
        ((), ("gloo", "nccl2", "nccl", "nccl-legacy")),
        (("gloo",), ("gloo", "nccl2", "nccl", "nccl-legacy")),
        (("gloo", "nccl2"), ("gloo", "nccl2")),
        (("nccl2",), ("nccl2",)),
    ],
)
def test_gloo_that_answers_first_does_not_hide_the_recorder_of_the_gpus(answered, asked):
    sources = sources_of(["cpu:gloo,cuda:nccl"])
    rank = WatchedRank(RankKey(0, 0), sources)
    for source in sources:
        if source.backend in answered:
            rank.traces[source] = read_trace(trace(operation(1)), source)
    assert tuple(source.backend for source in rank.live_sources()) == asked
