"""Hang evidence, by real drills: the candidate's over the collector's road, and what torch leaves alone on both stacks.

The collector's drills must PASS. What torch does alone is compared: a rank whose dump the baseline leaves and the
candidate does not is a difference. On gloo torch leaves none on either: that is said, and is no difference. A drill
whose ranks had another torch than the stack says nothing of the stack.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hangdrill.certify.cells import CellContext, CellResult, Claim, Needs
from hangdrill.certify.places import scenario_in
from hangdrill.certify.stacks import BASELINE, CANDIDATE, Stack
from hangdrill.drill.control import ControlReader
from hangdrill.drill.layout import RunLayout
from hangdrill.drill.run import run_drill
from hangdrill.model.certify_plan import CertifyPlan, Topology
from hangdrill.model.receipt import Difference, EvidenceFile, Item, Line
from hangdrill.model.run import DrillResult
from hangdrill.model.scenario import Before, Expect, Fault, FaultKind, Job, Recorder, Scenario, Trigger, WorkloadName
from hangdrill.model.verdict import Verdict

__all__ = [
    "IMPORT_S",
    "WITHIN_S",
    "AloneCell",
    "DrillCell",
    "alone_line",
    "arrived",
    "drill_cells",
    "drill_on",
    "hold_scenario",
    "line_of_drill",
    "placed",
    "require_own_torch",
]

ARRIVAL = "every-rank-dumped"
WITHIN_S = {Trigger.COLLECTOR: 60.0, Trigger.NATIVE: 130.0}
"""Legacy waits up to a minute for dumps before it ends."""
IMPORT_S = 8.0
FILES = ("result.json", "plan.json", "journal.jsonl")
MESH_TP = "mesh_tp"


class Shape(msgspec.Struct, frozen=True):
    """The drill of a topology: its workload, and the operation before which a rank is held."""

    workload: WorkloadName
    op: str
    nth: int


SHAPES: dict[Topology, Shape] = {
    Topology.SINGLE_NODE: Shape(WorkloadName.ALL_REDUCE, "all_reduce", 5),
    Topology.DP: Shape(WorkloadName.DDP, "all_reduce", 4),
    Topology.FSDP: Shape(WorkloadName.FSDP2, "all_gather_into_tensor", 4),
    Topology.TP: Shape(WorkloadName.TENSOR_PARALLEL, "all_reduce", 4),
    Topology.PP: Shape(WorkloadName.PIPELINE, "recv", 3),
    Topology.MESH_2D: Shape(WorkloadName.MESH_2D, "all_reduce", 3),
}


def drill_cells(plan: CertifyPlan) -> tuple["DrillCell | AloneCell", ...]:
    """A drill for each topology over the collector's road, and one of what torch does alone."""
    named = dict.fromkeys((Topology.SINGLE_NODE, *(one for one in plan.topologies if one in SHAPES)))
    return (*(DrillCell(plan, one) for one in named), AloneCell(plan))


class DrillCell:
    """The last rank is held; the collector must bring every rank's dump, and they must name it."""

    takes_images = True

    def __init__(self, plan: CertifyPlan, topology: Topology) -> None:
        self._plan, self._topology = plan, topology
        self.id = f"drills/collector/{topology.value}"
        self.topology = topology.value
        self.title = f"a rank of a {topology.value} job is held, and the collector pulls"

    @property
    def needs(self) -> Needs:
        """The candidate; a GPU a rank where the backend uses them."""
        return Needs(stacks=(CANDIDATE,), gpus=_gpus(self._plan))

    @property
    def claims(self) -> tuple[Claim, ...]:
        """One line."""
        claim = "the candidate's hang leaves evidence of every rank, and it names the culprit"
        return (Claim(id=f"{self.id}/evidence", item=Item.RECORDER, topology=self.topology, claim=claim),)

    @property
    def estimate_s(self) -> float:
        """Start, stall and teardown."""
        return IMPORT_S + 1.5 * self._plan.workload.timeout_s

    def run(self, context: CellContext) -> CellResult:
        """One drill."""
        scenario = hold_scenario(self._plan, self._topology, Trigger.COLLECTOR)
        result, files = drill_on(context, CANDIDATE, scenario, name="run")
        line = line_of_drill(self.claims[0], result, files)
        return CellResult(id=self.id, topology=self.topology, lines=(line,), artifacts=files)


class AloneCell:
    """What torch leaves of the same hang when nobody pulls, on both stacks."""

    id = "drills/alone"
    takes_images = True
    topology = Topology.SINGLE_NODE.value
    title = "what torch leaves of a held rank when nobody pulls, on both stacks"

    def __init__(self, plan: CertifyPlan) -> None:
        self._plan = plan

    @property
    def needs(self) -> Needs:
        """Both stacks; a GPU a rank where the backend uses them."""
        return Needs(gpus=_gpus(self._plan))

    @property
    def claims(self) -> tuple[Claim, ...]:
        """One line."""
        claim = "alone, the candidate leaves the dump of every rank of which the baseline leaves one"
        return (Claim(id=f"{self.id}/arrival", item=Item.RECORDER, topology=self.topology, claim=claim),)

    @property
    def estimate_s(self) -> float:
        """On GPUs torch takes its time before it ends."""
        alone_s = 60.0 if _gpus(self._plan) else self._plan.workload.timeout_s
        return 2 * (IMPORT_S + alone_s)

    def run(self, context: CellContext) -> CellResult:
        """A drill on each."""
        scenario = hold_scenario(self._plan, Topology.SINGLE_NODE, Trigger.NATIVE)
        old, old_files = drill_on(context, BASELINE, scenario, name=BASELINE)
        new, new_files = drill_on(context, CANDIDATE, scenario, name=CANDIDATE)
        files = (*old_files, *new_files)
        line, difference = alone_line(self.claims[0], old, new)
        line = msgspec.structs.replace(line, evidence=tuple(file.path for file in files))
        return CellResult(
            id=self.id,
            topology=self.topology,
            lines=(line,),
            differences=(difference,) if difference is not None else (),
            artifacts=files,
        )


def _shape(topology: Topology, backend: str) -> Shape:
    """gloo records no send and no recv: there a pipeline is held before the all_reduce that ends its step."""
    if topology is Topology.PP and backend == "gloo":
        return Shape(WorkloadName.PIPELINE, "all_reduce", 2)
    return SHAPES[topology]


def hold_scenario(
    plan: CertifyPlan,
    topology: Topology,
    trigger: Trigger,
    *,
    backend: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Scenario:
    """The plan's job, its last rank held. backend, env: instead of the plan's backend, and over its variables."""
    work, shape = plan.workload, _shape(topology, backend or plan.workload.backend)
    ranks = work.nproc_per_node
    split = topology is Topology.MESH_2D and ranks > 2  # of two ranks "tp" is the default group itself
    return Scenario(
        title=f"certify: {shape.workload.value}, the last rank held, {trigger.value}",
        job=Job(
            workload=shape.workload,
            nproc_per_node=ranks,
            backend=backend or work.backend,
            timeout_s=work.timeout_s,
            env=dict(env or {}),
        ),
        fault=Fault(
            kind=FaultKind.HOLD,
            rank=ranks - 1,
            before=Before(group=MESH_TP if split else "default_pg", op=shape.op, nth=shape.nth),
        ),
        recorder=Recorder(trigger=trigger),
        expect=Expect(culprit=ranks - 1, within_s=WITHIN_S[trigger]),
    )


def drill_on(
    context: CellContext, stack: str, scenario: Scenario, *, name: str, cwd: Path | None = None
) -> tuple[DrillResult, tuple[EvidenceFile, ...]]:
    """Run it on that stack, in the cell's directory. cwd: of a script's job. Raises MachineError, also when a rank had
    another torch than the stack, and Interrupted."""
    run_dir = context.cell_dir / name
    scenario, environ = placed(context, stack, scenario)
    result = run_drill(
        name,
        scenario,
        run_dir=run_dir,
        python=context.stacks[stack].python,
        environ=environ,
        listener=context.listener,
        interrupt=context.interrupt,
        cwd=cwd,
    )
    require_own_torch(run_dir, context.stacks[stack])
    return result, context.evidence(*(run_dir / file for file in FILES if (run_dir / file).is_file()))


def require_own_torch(run_dir: Path, stack: Stack) -> None:
    """MachineError when a rank of the drill had another torch than the stack's fingerprint, by its own report."""
    for facts in ControlReader(RunLayout(run_dir).control).facts().values():
        stack.require_torch(facts.torch, rank=facts.rank, host=facts.host)


def placed(context: CellContext, stack: str, scenario: Scenario) -> tuple[Scenario, Mapping[str, str]]:
    """The scenario where the stack is, and the environment to drill it from: of an image, hangdrill's own."""
    place, environ = context.place_of(stack), context.job_environ(stack)
    return scenario_in(place, scenario, environ), context.environ if place.image else environ


def line_of_drill(claim: Claim, result: DrillResult, files: Sequence[EvidenceFile]) -> Line:
    """The drill's verdict is the line's; its failing checks are the detail."""
    bad = [check for check in result.checks if check.verdict is not Verdict.PASS]
    first = next((check for check in bad if check.verdict is result.verdict), None)
    troubles = "; ".join(f"{check.name} {check.verdict.value}: {check.detail}" for check in bad[:3])
    return Line(
        id=claim.id,
        item=claim.item,
        topology=claim.topology,
        verdict=result.verdict,
        claim=claim.claim,
        detail=troubles or result.sentence,
        mend=first.mend or "hangdrill check tells all of it again" if first is not None else "",
        evidence=tuple(file.path for file in files),
    )


def arrived(result: DrillResult) -> frozenset[int] | None:
    """The ranks whose dumps arrived; None when the drill cannot say so of every rank."""
    found = next((check for check in result.checks if check.name == ARRIVAL), None)
    if found is None or not found.ranks or Verdict.UNKNOWN in (found.verdict, *found.ranks.values()):
        return None
    return frozenset(int(rank) for rank, verdict in found.ranks.items() if verdict is Verdict.PASS)


def alone_line(claim: Claim, old: DrillResult, new: DrillResult) -> tuple[Line, Difference | None]:
    """What both left; a rank that only the candidate lost is a FAIL."""
    before, after = arrived(old), arrived(new)
    line = Line(id=claim.id, item=claim.item, topology=claim.topology, verdict=Verdict.UNKNOWN, claim=claim.claim)
    if before is None or after is None:
        side = BASELINE if before is None else CANDIDATE
        detail = f"the drill of the {side} cannot say which dumps arrived: {(old if before is None else new).sentence}"
        return msgspec.structs.replace(line, detail=detail, mend=f"see its run directory, {side}"), None
    detail = f"baseline: {_ranks(before)}; candidate: {_ranks(after)}"
    if not before and not after:
        detail += "; torch alone leaves nothing on either: only the collector's drills count"
    difference = None
    if before != after:
        difference = Difference(
            line=claim.id,
            what="native dumps that arrive",
            baseline=_ranks(before),
            candidate=_ranks(after),
            declared=before < after,
        )
    if before - after:
        mend = 'run a collector beside your jobs (trigger = "collector"), and declare this difference'
        return msgspec.structs.replace(
            line, verdict=Verdict.FAIL, detail=detail, mend=mend, declarable=True
        ), difference
    return msgspec.structs.replace(line, verdict=Verdict.PASS, detail=detail), difference


def _ranks(ranks: frozenset[int]) -> str:
    return f"ranks {', '.join(map(str, sorted(ranks)))}" if ranks else "none"


def _gpus(plan: CertifyPlan) -> int:
    return plan.workload.nproc_per_node if "nccl" in plan.workload.backend else 0
