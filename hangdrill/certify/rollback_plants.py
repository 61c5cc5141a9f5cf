"""Mistakes with the fallback, made on purpose in real ranks: each must be found, else no line proves anything.

The ranks meet over gloo, for those of an NCCL group that do not agree would wait for one another for good; what is
looked at is what torch has registered in each of them, which is what an NCCL group would be made of.
"""

from collections.abc import Iterator

from hangdrill.certify.canary_jobs import CanaryJob, run_canary
from hangdrill.certify.canary_runs import run_of_stack
from hangdrill.certify.cells import CellContext
from hangdrill.certify.rollback_judge import NEW_DEFAULT_SINCE, ROADS, judge_rank, release_of
from hangdrill.certify.stacks import CANDIDATE
from hangdrill.model.receipt import Control

__all__ = ["PLANTS", "plant_controls"]

PLANTED_RANKS = 2
PLANTS: tuple[dict[str, tuple[int, str]], ...] = (
    {"missing": (0, "missing:0"), "late": (1, "late:1")},
    {"wrong-value-false": (0, "value:0=false"), "wrong-value-00": (1, "value:1=00")},
)
"""Two jobs of two ranks: name of the mistake -> the rank that makes it, and how the job is told."""


def plant_controls(context: CellContext) -> Iterator[Control]:
    """A rank without the setting, one with a wrong value, one whose setting comes too late: each must be found."""
    release = release_of(context.stacks[CANDIDATE].torch)
    if release is not None and release < NEW_DEFAULT_SINCE:
        return  # "nccl" is the old implementation whatever is set: there is no mistake to make
    for number, plants in enumerate(PLANTS):
        run = run_canary(
            CanaryJob(
                python=context.stacks[CANDIDATE].python,
                environ=context.job_environ(CANDIDATE),
                place=context.place_of(CANDIDATE),
                directory=context.cell_dir / f"planted-{number}",
                backend="gloo",  # the ranks of an NCCL group would wait for each other for good
                ranks=PLANTED_RANKS,
                options=tuple(word for _, plant in plants.values() for word in ("--plant", plant)),
                variables=ROADS["variable"].variables,
                deadline_s=context.plan.workload.deadline_s,
            ),
            context.interrupt,
        )
        run_of_stack(run, context.stacks[CANDIDATE])
        for name, (rank, _) in plants.items():
            verdict, proof = judge_rank(ROADS["variable"], rank, run.of_attempt().get(rank))
            claim = f"a rank whose fallback is broken ({name}) is found"
            detail = f"rank {rank}: {proof.detail}"
            yield Control(name=f"rollback/{name}", claim=claim, got=verdict, detail=detail)
