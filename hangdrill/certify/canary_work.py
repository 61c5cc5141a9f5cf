"""Work from start to end: a canary job seen as a training job, its killed rank and recovery included. Pure."""

from statistics import median

from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.canary_runs import PairRuns
from hangdrill.certify.measures import Measured
from hangdrill.model.certify_plan import CertifyPlan, Measure, Topology
from hangdrill.model.receipt import Item, Work

__all__ = ["work_done", "work_measured", "work_of"]

WORK_PARTS = ("init", "dp", "checkpoint", "recover", "shutdown")
"""What a training job does too: the other parts' time is not laid on the work's account."""
WORK = "single-node/whole-job-throughput"


def work_of(run: CanaryRun) -> tuple[int, float] | None:
    """(steps, seconds) of a run as a training job: from the launch to the end of torchrun, with its checkpoint, the
    killed rank and the recovery, without the parts that only measure."""
    steps = [run.slowest("dp_steps"), run.slowest("recovered_steps", attempt=1)]
    if None in steps or run.exit_code != 0:
        return None
    names = {name for record in run.ranks for name in record.measures if name.startswith("part_")}
    idle = [name for name in names if name.removeprefix("part_").removesuffix("_s") not in WORK_PARTS]
    measuring_s = sum(run.slowest(name) or 0.0 for name in idle)
    return int(sum(step or 0 for step in steps)), max(1e-3, run.wall_s - measuring_s)


def work_measured(plan: CertifyPlan) -> Measured:
    def rate(run: CanaryRun) -> float | None:
        found = work_of(run)
        return None if found is None else found[0] / found[1]

    return Measured(
        name=WORK,
        measure=Measure.THROUGHPUT,
        item=Item.WORK,
        topology=Topology.SINGLE_NODE,
        claim="steps a second from start to end (startup, checkpoint, a killed rank and its recovery): no worse",
        sample=rate,
        also=(Measure.RECOVERY_TIME,),
    )


def work_done(role: str, runs: PairRuns, plan: CertifyPlan) -> Work | None:
    """The median run, as work per hour and per price."""
    found = [work for run in getattr(runs, role) if (work := work_of(run)) is not None]
    if not found:
        return None
    steps, wall_s = found[0][0], median(seconds for _, seconds in found)
    hourly = 3600 * steps / wall_s
    return Work(
        stack=role,
        topology=Topology.SINGLE_NODE.value,
        steps=steps,
        wall_s=round(wall_s, 3),
        steps_per_hour=round(hourly, 1),
        steps_per_price=round(hourly / plan.price.per_hour, 1) if plan.price is not None else None,
        currency=plan.price.currency if plan.price is not None else "",
    )
