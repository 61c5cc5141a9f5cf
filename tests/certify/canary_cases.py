"""Runs of canary jobs as values: what ranks leave, without any job. Numbers are those of two H200s where it matters."""

import random
from typing import Any

from hangdrill.certify.canary_records import CanaryRun, RankFacts, RankRecord, SwitchFacts
from hangdrill.certify.canary_runs import PairRuns

OLD, NEW = "_create_nccl_process_group", "_create_nccl2_process_group"
SECOND_NS = 10**9
MEASURES = {
    "init_s": 0.8, "first_collective_s": 0.16, "init_bytes": 460e6, "group_bytes": 197e6, "peak_bytes": 5e9,
    "all_reduce_4096_s": 60e-6, "all_reduce_4194304_s": 69e-6, "all_reduce_268435456_s": 985e-6,
    "p2p_4096_s": 100e-6, "p2p_4194304_s": 129e-6, "p2p_268435456_s": 2e-3,
    "first_p2p_s": 0.3, "first_p2p_bytes": 20e6, "start_s": 0.96,
    "dp_step_s": 0.01, "fsdp_step_s": 0.02, "save_s": 2.0, "restore_s": 1.0, "dp_steps": 23, "recovered_steps": 23,
    "part_groups_s": 1.0, "part_dp_s": 1.0,
}  # fmt: skip


def rank_record(
    rank: int,
    *,
    ranks: int = 2,
    attempt: int = 0,
    backend_class: str = "ProcessGroupNCCL2",
    creators: dict[str, str] | None = None,
    switch: SwitchFacts | None = None,
    failed: dict[str, str] | None = None,
    times_ns: dict[str, int] | None = None,
    doing: str = "",
    facts: dict[str, Any] | None = None,
    **measures: float,
) -> RankRecord:
    """One rank's file."""
    return RankRecord(
        rank=rank,
        world_size=ranks,
        attempt=attempt,
        doing=doing,
        measures={**MEASURES, **measures},
        facts=RankFacts(
            host="h",
            local_rank=rank,
            backend_class=backend_class,
            creators={"nccl": NEW, "nccl-legacy": OLD} if creators is None else creators,
            switch=switch or SwitchFacts(),
            **{"device": f"cuda:{rank}", **(facts or {})},
        ),
        failed=failed or {},
        times_ns=times_ns or {},
    )


def canary_run(*records: RankRecord, ranks: int = 2, exit_code: int | None = 0, wall_s: float = 30.0) -> CanaryRun:
    """One job; without records every rank did well, was killed once and came back."""
    healthy = [rank_record(rank) for rank in range(ranks)]
    return CanaryRun(
        world_size=ranks,
        ranks=records or tuple(healthy),
        exit_code=exit_code,
        ended_ns=round(wall_s * SECOND_NS),
        wall_s=wall_s,
    )


def whole_run(*, scale: float = 1.0, more_mb: float = 0.0, seed: int = 0, noise: float = 0.02) -> CanaryRun:
    """A whole job with its recovery, on a machine with noise. scale: of every time; more_mb: of every memory."""
    dice = random.Random(seed)

    def taken(name: str, value: float) -> float:
        if name.endswith("_bytes"):
            return value + more_mb * 1e6 + dice.choice([0, 0, 0, 2e6])
        tail = dice.uniform(1.5, 4) if dice.random() < 0.02 else 1.0
        return value * scale * tail * dice.lognormvariate(0, noise) if name.endswith("_s") else value

    def measured() -> dict[str, float]:
        return {name: taken(name, value) for name, value in MEASURES.items()}

    killed_ns, back_ns = 10 * SECOND_NS, round((10 + taken("recovery_s", 8.0)) * SECOND_NS)
    records = [rank_record(rank, times_ns={"killed": killed_ns} if rank == 1 else {}, **measured()) for rank in (0, 1)]
    leaving_ns = back_ns + SECOND_NS
    records += [
        rank_record(rank, attempt=1, times_ns={"recovered": back_ns, "leaving": leaving_ns}, **measured())
        for rank in (0, 1)
    ]
    wall_s = leaving_ns / SECOND_NS + taken("shutdown_s", 3.0)
    return canary_run(*records, wall_s=wall_s)


def pair_runs(pairs: int = 16, *, scale: float = 1.0, more_mb: float = 0.0, seed: int = 0) -> PairRuns:
    """Pairs of one stack against itself, or against one that is slower or larger."""
    return PairRuns(
        baseline=tuple(whole_run(seed=1000 * seed + pair) for pair in range(pairs)),
        candidate=tuple(
            whole_run(scale=scale, more_mb=more_mb, seed=1000 * seed + 500 + pair) for pair in range(pairs)
        ),
    )
