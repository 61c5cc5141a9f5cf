"""More canary cells: nccl against its own variants on the candidate."""

import msgspec

from hangdrill.certify.canary_results import chosen_of, evidence_of, judge_all, left_out_lines, samples_by_name
from hangdrill.certify.canary_runs import PairRuns, Side, run_pairs
from hangdrill.certify.cells import CellContext, CellResult, Claim, Needs
from hangdrill.certify.measures import measured_of, parts_of
from hangdrill.certify.stacks import CANDIDATE
from hangdrill.model.certify_plan import CertifyPlan, Measure, Topology
from hangdrill.model.receipt import EvidenceFile

__all__ = ["MEASURES", "VARIANTS", "VariantCell", "variant_parts"]

JOB_S = 14.0
"""One short job on GPUs of an idle machine."""
VARIANTS = ("nccl-legacy", "nccl-lazy")
PARTS = ("groups", "latency", "p2p")
MEASURES = (
    Measure.INIT_TIME,
    Measure.START_TIME,
    Measure.MEMORY_BEFORE_FIRST_STEP,
    Measure.MEMORY_PER_UNUSED_GROUP,
    Measure.COLLECTIVE_LATENCY,
    Measure.P2P_LATENCY,
    Measure.P2P_START_TIME,
    Measure.MEMORY_OF_P2P,
)
"""Of what a short job measures."""


def variant_parts(plan: CertifyPlan) -> tuple[str, ...]:
    """Of a short job."""
    return tuple(part for part in parts_of(plan) if part in PARTS)


class VariantCell:
    """nccl against another implementation of it in the same stack: an answer with numbers, never a FAIL."""

    takes_images = True
    topology = Topology.SINGLE_NODE.value
    goes_on = True

    def __init__(self, plan: CertifyPlan, variant: str) -> None:
        """variant: nccl-lazy, or nccl-legacy while there is one."""
        self._plan, self._variant = plan, variant
        self.id = f"canary/{variant}"
        self.title = f"{variant} against nccl on the candidate, pair by pair"
        every = (
            msgspec.structs.replace(
                one, claim=f"{one.claim.split(':')[0]}: nccl beside {variant}, measured and decided"
            )
            for one in measured_of(plan)
            if one.measure in MEASURES
        )
        self._measured, self._left_out = chosen_of(every, plan)

    @property
    def needs(self) -> Needs:
        """The candidate and its GPUs."""
        return Needs(stacks=(CANDIDATE,), gpus=self._plan.workload.nproc_per_node)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """A line for each measure; PASS means that it was measured and decided."""
        return tuple(
            Claim(id=f"{self.id}/{one.name}", item=one.item, topology=self.topology, claim=one.claim)
            for one in (*self._measured, *self._left_out)
        )

    @property
    def estimate_s(self) -> float:
        """Two jobs a pair."""
        return 2 * self._plan.workload.pairs * JOB_S

    def run(self, context: CellContext) -> CellResult:
        """All pairs."""
        old, new = (Side(name=name, stack=CANDIDATE, backend=name) for name in (self._variant, "nccl"))
        runs = run_pairs(context, old, new, parts=variant_parts(context.plan), pairs=context.plan.workload.pairs)
        return self.judge(runs, evidence_of(context, runs))

    def judge(self, runs: PairRuns, files: tuple[EvidenceFile, ...]) -> CellResult:
        """The lines: answers with numbers."""
        judged = judge_all(
            self._measured,
            runs,
            self._plan,
            cell=self.id,
            evidence=tuple(file.path for file in files),
            names=(self._variant, "nccl"),
            variants=True,
        )
        return CellResult(
            id=self.id,
            topology=self.topology,
            lines=(*(one.line for one in judged), *left_out_lines(self.claims, self._left_out)),
            differences=tuple(
                msgspec.structs.replace(one.difference, what=f"{one.difference.what}, {self._variant} -> nccl")
                for one in judged
                if one.difference is not None
            ),
            samples=samples_by_name(self._measured, judged),
            artifacts=files,
        )
