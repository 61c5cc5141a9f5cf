"""Two more canary cells: nccl against nccl-lazy on the candidate; and several nodes, which are not measured yet."""

import msgspec

from hangdrill.certify.canary_lines import judge_measure
from hangdrill.certify.canary_results import evidence_of, samples_by_name
from hangdrill.certify.canary_runs import Side, run_pairs
from hangdrill.certify.cells import CellContext, CellResult, Claim, Needs
from hangdrill.certify.compare_samples import Rule
from hangdrill.certify.measures import Measured, limit_of, measured_of
from hangdrill.certify.stacks import CANDIDATE
from hangdrill.model.certify_plan import CertifyPlan, Measure, Topology
from hangdrill.model.errors import MachineError
from hangdrill.model.receipt import Item, Line
from hangdrill.model.verdict import Verdict

__all__ = ["LazyCell", "MultiNodeCell"]

JOB_S = 12.0
"""One short job on GPUs of an idle machine."""


class LazyCell:
    """Is the lazy variant's p2p worth the dumps that it does not leave? An answer, never a FAIL."""

    id = "canary/lazy"
    topology = Topology.SINGLE_NODE.value
    title = "nccl against nccl-lazy on the candidate, pair by pair"

    def __init__(self, plan: CertifyPlan) -> None:
        self._plan = plan
        wanted = (Measure.COLLECTIVE_LATENCY, Measure.P2P_LATENCY, Measure.MEMORY_BEFORE_FIRST_STEP, Measure.INIT_TIME)
        self._measured = tuple(one for one in measured_of(plan) if one.measure in wanted)

    @property
    def needs(self) -> Needs:
        """The candidate and its GPUs."""
        return Needs(stacks=(CANDIDATE,), gpus=self._plan.workload.nproc_per_node)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """A line for each measure; PASS means that it was measured and decided."""
        return tuple(
            Claim(id=f"{self.id}/{one.name}", item=one.item, topology=self.topology, claim=_lazy_claim(one))
            for one in self._measured
        )

    @property
    def estimate_s(self) -> float:
        """Two jobs a pair."""
        return 2 * self._plan.workload.pairs * JOB_S

    def run(self, context: CellContext) -> CellResult:
        """All pairs."""
        plan = context.plan
        old, new = (Side(name=name, stack=CANDIDATE, backend=name) for name in ("nccl", "nccl-lazy"))
        runs = run_pairs(context, old, new, parts=("groups", "latency", "p2p"), pairs=plan.workload.pairs)
        files = evidence_of(context, runs)
        judged = [
            judge_measure(
                msgspec.structs.replace(one, claim=_lazy_claim(one)),
                runs,
                cell=self.id,
                limit=limit_of(one.measure, plan.thresholds),
                rule=Rule(),
                evidence=tuple(file.path for file in files),
                names=("nccl", "nccl-lazy"),
            )
            for one in self._measured
        ]
        lines = tuple(_never_fail(one.line) for one in judged)
        return CellResult(
            id=self.id,
            topology=self.topology,
            lines=lines,
            samples=samples_by_name(self._measured, judged),
            artifacts=files,
        )


class MultiNodeCell:
    """Named in a plan, and not measured by this release: said as UNKNOWN, so that the plan's page does not lack it."""

    id = "canary/multi-node"
    topology = Topology.MULTI_NODE.value
    title = "both stacks measured over several nodes"
    needs = Needs()
    estimate_s = 0.0

    @property
    def claims(self) -> tuple[Claim, ...]:
        """One line."""
        claim = "over several nodes the candidate is no worse than the baseline"
        return (Claim(id=f"{self.id}/measured", item=Item.TOPOLOGY, topology=self.topology, claim=claim),)

    def run(self, context: CellContext) -> CellResult:
        """Raises MachineError: the pairs are run on one host."""
        raise MachineError(
            "the canary's pairs run on one host in this release",
            next_step="certify on each kind of host, and drill several nodes with `hangdrill run` and launcher slurm",
        )


def _never_fail(line: Line) -> Line:
    """Which of two variants is faster is an answer, not a fault."""
    return line if line.verdict is Verdict.UNKNOWN else msgspec.structs.replace(line, verdict=Verdict.PASS, mend="")


def _lazy_claim(measured: Measured) -> str:
    return f"{measured.claim.split(':')[0]}: nccl-lazy beside nccl, measured on the candidate"
