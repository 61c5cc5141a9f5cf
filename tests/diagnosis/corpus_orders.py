"""Cases of the corpus: hangs in sends and receives, in the order of groups, and hangs that nobody can explain."""

from collections.abc import Iterator

from corpus_tools import CorpusCase, all_of, doubtful, hang, places, run, team, world
from program_strategies import ring, transfer
from simulator import Fault

__all__ = ["inversions", "joined", "point_to_point"]


def point_to_point() -> Iterator[CorpusCase]:
    """Sends and receives, alone, in rings, in batches, and as the root of a cascade."""
    group = world(4)
    down = tuple(transfer(group, i, i + 1) for i in range(3))
    for dialect in ("nccl2", "nccl-legacy"):
        for place, rank, kinds in (
            ("first", 0, "p2p-unmatched"),
            ("middle", 2, "p2p-unmatched"),
            ("last", 3, "p2p-unmatched"),
        ):
            outcome = run([group], down * 3, Fault("hold", rank, {0: 1, 2: 2, 3: 1}[rank]))
            yield hang(f"pipeline-{dialect}-{place}", outcome, kinds, rank, dialect=dialect)
        stage = run([group], (*down, all_of(group)), Fault("hold", 3, 0))
        yield hang(f"pipeline-then-all-reduce-{dialect}", stage, ("p2p-unmatched", "rank-absent"), 3, dialect=dialect)
        ahead = run(
            [group], (*down, *(transfer(group, i + 1, i) for i in (2, 1, 0))) * 2, Fault("hold", 1, 2), lookahead=8
        )
        yield hang(f"pipeline-there-and-back-enqueued-{dialect}", ahead, "p2p-unmatched", 1, dialect=dialect)
    anybody = run([group], down * 2, Fault("hold", 1, 1))
    yield doubtful("receives-from-anybody", anybody, may=[1], dialect="nccl2", any_source=True, sure=True)
    for place, rank in places(4):
        turns = run([group], (ring(group),) * 3, Fault("hold", rank, 2))
        yield hang(f"ring-of-batches-legacy-{place}", turns, "p2p-unmatched", rank, dialect="nccl-legacy")
    gone = run([group], (*down, *down), Fault("kill", 2, 2))
    yield doubtful(
        "pipeline-rank-killed-while-the-first-is-done", gone, ["p2p-unmatched"], may=[2], dialect="nccl2", sure=True
    )
    yield doubtful("batch-that-hangs-but-reads-completed", run([group], (ring(group),) * 3, Fault("hold", 1, 2)),
                   may=[1], dialect="nccl2")  # fmt: skip
    hidden = run([group], (ring(group), all_of(group)), Fault("hold", 1, 0))
    yield doubtful("innocent-in-a-batch-that-reads-completed", hidden, may=[1], dialect="nccl2", sure=True)
    unseen = run([group], (*down, all_of(group), *down, all_of(group)), Fault("hold", 3, 2))
    yield doubtful("gloo-does-not-record-the-receive-they-wait-in", unseen, may=[3], dialect="gloo", sure=True)


def inversions() -> Iterator[CorpusCase]:
    """Two ranks take two groups in opposite order."""
    kinds = ("order-inversion",)
    for size in (2, 6):
        teams = [world(size), team("1", 0, 1), team("2", 0, 1, *range(3, size))]
        for dialect in ("nccl2", "gloo"):
            outcome = run(
                teams, (all_of(teams[0]), all_of(teams[1]), all_of(teams[2], "all_gather")), Fault("invert", 0, 1)
            )
            yield doubtful(f"inversion-{size}-{dialect}", outcome, kinds, may=[0, 1], dialect=dialect, sure=True)
    teams = [world(2), team("1", 0, 1), team("2", 0, 1)]
    queued = run(teams, (all_of(teams[1]), all_of(teams[2])), Fault("invert", 1, 0), lookahead=4)
    yield doubtful("inversion-enqueued-so-that-all-joined", queued, (*kinds, "all-joined"), may=[0, 1], sure=True)
    pair = world(2)
    sends = (transfer(pair, 0, 1), transfer(pair, 1, 0))
    crossed = run([pair], sends, Fault("skip", 0, 0))
    yield doubtful("both-receive-and-nobody-sends", crossed, (*kinds, "p2p-unmatched"), may=[0, 1], sure=True)


def joined() -> Iterator[CorpusCase]:
    """Everybody entered and nobody finished: no dump can say why."""
    group = world(4)
    for dialect in ("nccl2", "nccl-legacy", "gloo"):
        outcome = run([group], (all_of(group),) * 4, Fault("stall", 2, 2))
        yield doubtful(f"all-joined-{dialect}", outcome, ["all-joined"], dialect=dialect, sure=True)
    piled = run([group], (all_of(group),) * 8, Fault("stall", 2, 2), lookahead=16)
    yield doubtful("all-joined-and-enqueued-ahead", piled, ["all-joined"], dialect="nccl2", sure=True)
    ahead = run([group], (all_of(group),) * 4, Fault("stall", 2, 2))
    yield doubtful("all-joined-and-a-clock-is-ahead", ahead, ["all-joined"], dialect="nccl2", skew_s={2: 20}, sure=True)
    timed = run([group], (all_of(group),) * 8, Fault("stall", 2, 2))
    yield doubtful("all-joined-and-started", timed, ["all-joined"], dialect="nccl-legacy", timing=True, sure=True)
