"""What is measured over several nodes: the measures of one host, on one job with the ranks of all nodes. Pure.

Clocks of nodes are not compared. So the shutdown is the time that a rank needs to destroy the process group. The
recovery is measured on one host alone: TORCHELASTIC_RESTART_COUNT is each node's own (only the node whose rank died
counts one more; seen in 4 of 4 restarts with torch 2.15), so the ranks would not agree which attempt they are.
"""

from collections.abc import Callable, Iterator

import msgspec

from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.measures import Measured, measured_of, parts_of
from hangdrill.model.certify_plan import CertifyPlan, Measure, Topology

__all__ = ["measured_over_nodes", "parts_over_nodes"]

BETWEEN_NODES = (Measure.P2P_LATENCY, Measure.P2P_START_TIME, Measure.MEMORY_OF_P2P)
NO_WORSE = "the candidate is no worse than the baseline"


def measured_over_nodes(plan: CertifyPlan) -> tuple[Measured, ...]:
    """Every line, by the measure's own name."""
    return tuple(_over_nodes(measured_of(_one_job(plan))))


def parts_over_nodes(plan: CertifyPlan) -> tuple[str, ...]:
    """What such a job must do. Nobody restarts it."""
    return tuple(part for part in parts_of(_one_job(plan)) if part != "recover")


def _one_job(plan: CertifyPlan) -> CertifyPlan:
    """The plan as if all ranks were on one node; a model is spread by DP."""
    work = plan.workload
    every = msgspec.structs.replace(work, nnodes=1, nproc_per_node=work.nnodes * work.nproc_per_node)
    return msgspec.structs.replace(plan, topologies=(Topology.DP,), workload=every)


def _over_nodes(measured: tuple[Measured, ...]) -> Iterator[Measured]:
    for one in measured:
        name, claim, sample = one.name.split("/", maxsplit=1)[1], f"over several nodes, {one.claim}", one.sample
        if one.measure is Measure.RECOVERY_TIME:
            continue
        if one.measure in BETWEEN_NODES:
            claim = f"between two nodes, {one.claim}"
        if one.measure is Measure.SHUTDOWN_TIME:
            claim, sample = f"over several nodes, destroying the process group: {NO_WORSE}", _slowest("destroy_s")
        yield msgspec.structs.replace(one, name=name, claim=claim, sample=sample, topology=Topology.MULTI_NODE)


def _slowest(name: str) -> Callable[[CanaryRun], float | None]:
    return lambda run: run.slowest(name)
