"""Built cases with the answer written beside each, by hand and not by the simulator: `CORPUS`.

Here: the healthy runs, and the hangs of which a part of the evidence is gone.
"""

from collections.abc import Iterator
from dataclasses import replace

from corpus_collectives import absences, cascades, mismatches
from corpus_orders import inversions, joined, point_to_point
from corpus_tools import CorpusCase, all_of, doubtful, hang, healthy, places, run, team, world
from program_strategies import mesh, ring, transfer
from simulator import Fault

__all__ = ["CORPUS", "CorpusCase"]


def healths() -> Iterator[CorpusCase]:
    """Nothing hangs, however odd it looks."""
    group = world(6)
    every = tuple(
        all_of(group, op, root=root)
        for root in (0, 5)
        for op in (
            "all_reduce",
            "all_gather",
            "reduce_scatter",
            "all_to_all",
            "barrier",
            "broadcast",
            "reduce",
            "gather",
            "scatter",
        )
    )
    teams = [group, *mesh(2, 3, same_name=True)]
    meshed = (*[all_of(one) for one in teams[1:]], all_of(group)) * 3
    down = tuple(transfer(group, i, i + 1) for i in range(5))
    for dialect in ("nccl2", "nccl-legacy", "gloo"):
        yield healthy(f"healthy-every-collective-{dialect}", run([group], every, lookahead=3), dialect=dialect)
        yield healthy(f"healthy-mesh-{dialect}", run(teams, meshed), dialect=dialect)
        yield healthy(f"healthy-pipeline-{dialect}", run([group], (*down, all_of(group)) * 2), dialect=dialect,
                      doubt=dialect == "gloo")  # fmt: skip
        yield healthy(
            f"healthy-ring-{dialect}", run([group], (ring(group),) * 3), dialect=dialect, doubt=dialect != "nccl-legacy"
        )
        yield healthy(f"healthy-status-lags-{dialect}", run([group], every), dialect=dialect, lag=True)
        yield healthy(f"healthy-small-ring-buffer-{dialect}", run(teams, meshed), dialect=dialect, window=2, doubt=True)
        yield healthy(
            f"healthy-only-active-{dialect}", run([group], every), dialect=dialect, only_active=True, doubt=True
        )
    down_any = run([group], (*down, all_of(group)) * 2)
    yield healthy("healthy-receives-from-anybody", down_any, dialect="nccl2", any_source=True)
    yield healthy("healthy-64", run([world(64)], (all_of(world(64)),) * 3), dialect="nccl2")
    yield healthy("healthy-one-rank-groups", run([group, team("1", 0), team("1", 3)],
                  (all_of(team("1", 0)), all_of(group), all_of(team("1", 3)))), dialect="nccl2")  # fmt: skip
    yield healthy("held-where-nobody-waits", run([group, team("1", 5)], (all_of(group), all_of(team("1", 5))),
                  Fault("hold", 5, 1)), dialect="nccl2")  # fmt: skip
    yield healthy("exit-after-the-last-operation", run([group], every, Fault("exit", 0, len(every))), dialect="nccl2")
    eager = run([group], (all_of(group, "broadcast"), all_of(group, "reduce")) * 3, eager=True)
    yield healthy("healthy-roots-run-ahead", eager, dialect="nccl2")
    early = run([group], (all_of(group),) * 6)
    yield healthy(
        "healthy-one-dump-taken-early", early, dialect="nccl2", early={2: early.entries[2][3].created}, doubt=True
    )


def scarcities() -> Iterator[CorpusCase]:
    """A hang with a part of the evidence gone."""
    for place, rank in places(4):
        group = world(4)
        killed = run([group], (all_of(group),) * 4, Fault("kill", rank, 2))
        yield hang(f"killed-{place}", killed, "rank-absent", rank, dialect="nccl2")
    pair = world(2)
    yield hang(
        "killed-of-two", run([pair], (all_of(pair),) * 4, Fault("kill", 0, 2)), "rank-absent", 0, dialect="nccl2"
    )
    group = world(6)
    teams = [group, team("1", 3, 4), team("2", 0, 1, 2, 4, 5)]
    order = (all_of(group), all_of(teams[1]), all_of(teams[2]))
    chained = run(teams, order, Fault("hold", 3, 1))
    yield hang("cascade-of-two-groups", chained, "rank-absent", 3, dialect="nccl2")
    there = "the-missing-rank-waits-for-one-who-is-there"
    yield doubtful(there, chained, may=[3], dialect="nccl2", lost=frozenset({4}), sure=True)
    waiting = run([pair], (all_of(pair),) * 4, Fault("hold", 1, 2))
    yield doubtful("only-the-held-rank-left-a-dump", waiting, may=[1], dialect="nccl2", lost=frozenset({0}))
    busy = [group, team("1", 0, 1)]
    chatter = (all_of(group), *(all_of(busy[1], "all_gather"),) * 9, all_of(group))
    forgot = run(busy, chatter, Fault("hold", 0, 9))
    yield doubtful("ring-buffer-forgot-the-group", forgot, may=[0], dialect="nccl2", window=4, sure=True)
    clock = run([group], (all_of(group),) * 4, Fault("hold", 0, 2))
    yield doubtful("another-clock-is-ahead", clock, may=[0], dialect="nccl2", skew_s={2: 20}, sure=True)
    active = run([group], (all_of(group),) * 4, Fault("hold", 0, 2))
    yield doubtful("only-active-dumps", active, may=[0], dialect="nccl2", only_active=True, sure=True)
    first = run([group], (all_of(group),) * 4, Fault("hold", 5, 0))
    yield doubtful("held-before-its-first-operation", first, may=[5], dialect="nccl2", sure=True)
    stale = run([group], (all_of(group),) * 6, Fault("hold", 5, 4))
    yield doubtful("an-innocent-dump-was-taken-too-early", stale, may=[5], dialect="nccl2",
                   early={2: stale.entries[2][1].created}, sure=True)  # fmt: skip
    member = [group, team("1", 1, 2, 3)]
    unknown = run(member, (all_of(group), all_of(member[1])), Fault("hold", 3, 1))
    yield replace(
        doubtful("gloo-group-whose-member-was-never-seen", unknown, may=[3], dialect="gloo", sure=True),
        launch_groups=False,
    )


CORPUS: tuple[CorpusCase, ...] = (
    *absences(), *cascades(), *mismatches(), *point_to_point(), *inversions(), *joined(), *healths(), *scarcities(),
)  # fmt: skip
