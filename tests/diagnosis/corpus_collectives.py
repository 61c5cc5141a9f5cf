"""Cases of the corpus: hangs in collectives."""

from collections.abc import Iterator

from corpus_tools import CorpusCase, all_of, doubtful, hang, places, run, team, world
from program_strategies import mesh
from simulator import Fault

__all__ = ["absences", "cascades", "mismatches"]


def absences() -> Iterator[CorpusCase]:
    """One rank never enters a collective of everybody."""
    dialects = ("nccl2", "nccl-legacy", "gloo")
    for number, size in enumerate((2, 4, 16, 64)):
        group = world(size)
        for place, rank in places(size)[:: 2 if size == 2 else 1]:
            held = Fault("hold", rank, 3)
            plain = run([group], (all_of(group),) * 6, held)
            yield hang(f"absent-{size}-{place}", plain, "rank-absent", rank, dialect=dialects[number % 3])
    group = world(5)
    mixed = tuple(
        all_of(group, op) for op in ("all_gather", "barrier", "reduce_scatter", "broadcast", "all_to_all", "all_reduce")
    )
    for dialect in dialects:
        for place, rank in places(5):
            ahead = run([group], mixed * 2, Fault("hold", rank, 7), lookahead=1 if dialect == "gloo" else 16)
            yield hang(f"absent-others-enqueue-ahead-{dialect}-{place}", ahead, "rank-absent", rank, dialect=dialect)
    for kind in ("exit", "hold"):
        last = run([group], mixed, Fault(kind, 4, 5))
        yield hang(f"{kind}-before-the-last-operation", last, "rank-absent", 4, dialect="nccl2")
    both = run([group], mixed, Fault("hold", 0, 3), Fault("hold", 4, 3))
    yield hang("two-absent-first-and-last", both, "rank-absent", 0, 4, dialect="nccl-legacy")
    later = run([group], mixed, Fault("hold", 1, 2), Fault("hold", 3, 4))
    yield hang("two-absent-the-earlier-is-named", later, "rank-absent", 1, dialect="nccl-legacy")


def cascades() -> Iterator[CorpusCase]:
    """The held rank is awaited in a small group; everybody else waits for those who wait."""
    for size, columns in ((8, 2), (16, 4), (64, 8)):
        rows = size // columns
        teams = [world(size), *mesh(rows, columns)]
        step = (*[all_of(one) for one in teams[1:]], all_of(teams[0]))
        for place, rank in places(size):
            mine = len([one for one in teams if rank in one.ranks])
            outcome = run(teams, step * 2, Fault("hold", rank, mine), lookahead=4)
            yield hang(f"mesh-{size}-{place}", outcome, "rank-absent", rank, dialect="nccl2")
            if size == 8:
                yield hang(f"mesh-gloo-{size}-{place}", run(teams, step * 2, Fault("hold", rank, mine)), "rank-absent",
                           rank, dialect="gloo")  # fmt: skip
    teams = [world(8), *mesh(4, 2, same_name=True)]
    step = (*[all_of(one, "all_gather") for one in teams[1:]], all_of(teams[0]))
    for place, rank in places(8):
        yield hang(f"mesh-of-equal-names-{place}", run(teams, step * 2, Fault("hold", rank, 3)), "rank-absent", rank,
                   dialect="nccl2")  # fmt: skip
    chain = [world(5), *(team(str(i), i - 1, i, desc="link") for i in range(1, 5))]
    links = tuple(all_of(one) for one in reversed(chain[1:]))
    yield hang("chain-of-pairs", run(chain, links, Fault("hold", 4, 0)), "rank-absent", 4, dialect="nccl2")
    behind = [world(4), team("1", 0, 1), team("2", 1, 2, 3)]
    order = (all_of(behind[2]), all_of(behind[1]), all_of(behind[2]))
    queued = run(behind, order, Fault("hold", 3, 0), lookahead=8)
    yield hang("joined-by-all-but-queued-behind-the-absence", queued, "rank-absent", 3, dialect="nccl-legacy")
    same = run(behind, (all_of(behind[2]), all_of(behind[1])), Fault("hold", 0, 0))
    yield hang("absent-in-a-pair-while-others-are-done", same, "rank-absent", 0, dialect="nccl2")


def mismatches() -> Iterator[CorpusCase]:
    """All enter and do different things: the minority is named, a tie is not."""
    group = world(5)
    for kind, word in (("wrong-op", "op"), ("wrong-shape", "shape"), ("wrong-dtype", "dtype")):
        for place, rank in places(5):
            outcome = run([group], (all_of(group),) * 4, Fault(kind, rank, 2), lookahead=2)
            dialect = {"first": "nccl2", "middle": "gloo", "last": "nccl-legacy"}[place]
            yield hang(f"{word}-mismatch-{place}", outcome, f"{word}-mismatch", rank, dialect=dialect)
        pair = world(2)
        tie = run([pair], (all_of(pair),) * 4, Fault(kind, 1, 2))
        yield doubtful(f"{word}-mismatch-of-two", tie, [f"{word}-mismatch"], dialect="nccl2", sure=False)
    parallel = [world(8), *mesh(4, 2)]
    rows = tuple(all_of(one) for one in parallel[1:5])
    odd_one = run(parallel, (*rows, *rows), Fault("wrong-op", 3, 1))
    yield doubtful("mismatch-of-two-beside-other-pairs", odd_one, ["op-mismatch"], may=[3], dialect="nccl2", sure=True)
    four = world(4)
    even = run([four], (all_of(four),) * 2, Fault("wrong-op", 0, 1), Fault("wrong-op", 3, 1))
    yield doubtful("op-mismatch-two-against-two", even, ["op-mismatch"], dialect="nccl-legacy")
    odd = run([group], (all_of(group),) * 2, Fault("wrong-shape", 0, 1), Fault("wrong-shape", 4, 1))
    yield hang("shape-mismatch-two-against-three", odd, "shape-mismatch", 0, 4, dialect="nccl2")
    skipped = run(
        [group], (all_of(group), all_of(group, "all_gather"), all_of(group, "broadcast")), Fault("skip", 2, 1)
    )
    yield hang("skipped-an-operation", skipped, "op-mismatch", 2, dialect="nccl2")
    alike = run([group], (all_of(group),) * 4, Fault("skip", 0, 1))
    yield hang("skipped-one-of-equal-operations", alike, "rank-absent", 0, dialect="nccl-legacy")
    small = [world(4), team("1", 0, 1, 2)]
    inner = run(small, (all_of(small[1]), all_of(small[0])), Fault("wrong-dtype", 1, 0))
    yield hang("mismatch-in-a-small-group-others-wait-outside", inner, "dtype-mismatch", 1, dialect="nccl2")
