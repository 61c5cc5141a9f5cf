"""The canary cell: both stacks measured pair by pair, one job a run; and which other cells a plan's canary has."""

import msgspec

from hangdrill.certify.canary_backend import BACKEND_CLAIM, backend_line
from hangdrill.certify.canary_nodes import MultiNodeCell
from hangdrill.certify.canary_others import VARIANTS, VariantCell
from hangdrill.certify.canary_results import chosen_of, evidence_of, judge_all, left_out_lines, samples_by_name
from hangdrill.certify.canary_runs import PairRuns, Side, run_pairs
from hangdrill.certify.canary_work import work_done, work_measured
from hangdrill.certify.cells import CellContext, CellResult, Claim, Needs
from hangdrill.certify.measures import measured_of, parts_of
from hangdrill.certify.stacks import BASELINE, CANDIDATE
from hangdrill.model.certify_plan import CertifyPlan, Topology
from hangdrill.model.receipt import EvidenceFile, Item, Line
from hangdrill.rank.canary.turns import IN_TURNS

__all__ = ["CanaryCell", "canary_cells"]

GPU_JOB_S = 34.0
"""One canary job on GPUs of an idle machine."""
PAIR_S, PART_S = 12.0, 3.5
"""Without GPUs: both jobs of a pair, and each part that they measure in turns."""
BACKEND = "single-node/backend"


def canary_cells(plan: CertifyPlan) -> tuple["CanaryCell | VariantCell | MultiNodeCell", ...]:
    """The cells of the canary matrix."""
    variants = VARIANTS if plan.workload.backend == "nccl" else ()
    several = (MultiNodeCell(plan),) if Topology.MULTI_NODE in plan.topologies else ()
    return (CanaryCell(plan), *(VariantCell(plan, variant) for variant in variants), *several)


class CanaryCell:
    """Baseline against candidate: one job measures everything, so a pair costs two starts."""

    id = "canary/stacks"
    takes_images = True
    topology = ""
    title = "both stacks measured, pair by pair"
    goes_on = True

    def __init__(self, plan: CertifyPlan) -> None:
        self._plan = plan
        every = (*measured_of(plan), work_measured(plan))
        self._measured, self._left_out = chosen_of(every, plan)

    @property
    def needs(self) -> Needs:
        """Both stacks; a GPU a rank where the backend uses them."""
        work = self._plan.workload
        return Needs(gpus=work.nproc_per_node if "nccl" in work.backend else 0)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """A line for each measure, and the backend by class."""
        backend = Claim(
            id=f"{self.id}/{BACKEND}",
            item=Item.BACKEND,
            topology=Topology.SINGLE_NODE.value,
            claim=BACKEND_CLAIM,
        )
        lines = [
            Claim(id=f"{self.id}/{one.name}", item=one.item, topology=one.topology.value, claim=one.claim)
            for one in (*self._measured, *self._left_out)
        ]
        return (backend, *lines)

    @property
    def estimate_s(self) -> float:
        """Two jobs a pair."""
        parts, pairs = set(parts_of(self._plan)), self._plan.workload.pairs
        if "nccl" in self._plan.workload.backend:
            return pairs * 2 * GPU_JOB_S
        return pairs * (PAIR_S + PART_S * len(parts & IN_TURNS))

    def run(self, context: CellContext) -> CellResult:
        """All pairs."""
        plan = context.plan
        old, new = (Side(name=name, stack=name, backend=plan.workload.backend) for name in (BASELINE, CANDIDATE))
        runs = run_pairs(context, old, new, parts=parts_of(plan), pairs=plan.workload.pairs)
        return self.judge(runs, evidence_of(context, runs))

    def judge(self, runs: PairRuns, files: tuple[EvidenceFile, ...]) -> CellResult:
        """Every line from the same runs."""
        plan = self._plan
        paths = tuple(file.path for file in files)
        judged = judge_all(self._measured, runs, plan, cell=self.id, evidence=paths)
        backend, difference = backend_line(f"{self.id}/{BACKEND}", runs, paths)
        found = [one.difference for one in judged if one.difference is not None]
        return CellResult(
            id=self.id,
            lines=(backend, *(_noted(one.line, runs) for one in judged), *left_out_lines(self.claims, self._left_out)),
            differences=(*((difference,) if difference else ()), *found),
            samples=samples_by_name(self._measured, judged),
            work=tuple(work for role in (BASELINE, CANDIDATE) if (work := work_done(role, runs, plan)) is not None),
            artifacts=files,
        )


def _noted(line: Line, runs: PairRuns) -> Line:
    """A 2D mesh of two ranks is none: the line says so."""
    if line.topology != Topology.MESH_2D.value:
        return line
    meshes = {record.facts.mesh for run in (*runs.baseline, *runs.candidate) for record in run.ranks}
    flat = next((mesh for mesh in meshes if 1 in mesh), None)
    if flat is None:
        return line
    note = f"; the mesh is {flat[0]} x {flat[1]}: take 4 ranks or more for a true one"
    return msgspec.structs.replace(line, detail=line.detail + note)
