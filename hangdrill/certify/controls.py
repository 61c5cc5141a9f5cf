"""Negative controls: something is broken on purpose, and the certification must find it broken.

Without them a receipt could be green because nothing was looked at. The drill here is a real one on the candidate,
with its flight recorder switched off; the check that dumps hold operations must FAIL, else the receipt is UNKNOWN.
"""

from collections.abc import Sequence

import msgspec

from hangdrill.certify.cells import CellContext, CellResult, Claim, Needs
from hangdrill.certify.drills import placed, require_own_torch
from hangdrill.certify.stacks import CANDIDATE
from hangdrill.drill.run import run_drill
from hangdrill.model.certify_plan import CertifyPlan
from hangdrill.model.receipt import Control, Item, Line
from hangdrill.model.run import DrillResult
from hangdrill.model.scenario import Before, Expect, Fault, FaultKind, Job, Recorder, Scenario, WorkloadName
from hangdrill.model.verdict import Verdict

__all__ = ["RecorderOff", "control_cells"]

CHECK = "has-entries"
RANKS = 2
IMPORT_S = 8.0


def control_cells(plan: CertifyPlan) -> Sequence["RecorderOff"]:
    """The controls of every certification."""
    return (RecorderOff(backend=plan.workload.backend, timeout_s=plan.workload.timeout_s),)


class RecorderOff(msgspec.Struct, frozen=True, kw_only=True):
    """A rank is held while every recorder keeps no entry: the dumps arrive, and are empty."""

    backend: str
    timeout_s: float
    id: str = "controls/recorder-off"
    topology: str = ""
    takes_images: bool = True
    title: str = "a drill with the recorder switched off must fail"

    @property
    def needs(self) -> Needs:
        """The candidate; GPUs where its backend uses them."""
        return Needs(stacks=(CANDIDATE,), gpus=RANKS if "nccl" in self.backend else 0)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """One line."""
        claim = "a drill whose recorder is switched off fails, so a passing one says something"
        return (Claim(id=f"{self.id}/found", item=Item.RECORDER, claim=claim),)

    @property
    def estimate_s(self) -> float:
        """Start, stall and teardown."""
        return IMPORT_S + 1.5 * self.timeout_s

    def run(self, context: CellContext) -> CellResult:
        """One drill."""
        run_dir = context.cell_dir / "run"
        scenario, environ = placed(context, CANDIDATE, self._scenario())
        result = run_drill(
            self.id,
            scenario,
            run_dir=run_dir,
            python=context.stacks[CANDIDATE].python,
            environ=environ,
            listener=context.listener,
            interrupt=context.interrupt,
        )
        require_own_torch(run_dir, context.stacks[CANDIDATE])
        artifacts = context.evidence(*(run_dir / name for name in ("result.json", "plan.json", "journal.jsonl")))
        paths = tuple(file.path for file in artifacts)
        control = _judged(self.id, result, paths)
        (claim,) = self.claims
        line = Line(
            id=claim.id,
            item=claim.item,
            verdict=Verdict.PASS if control.held else Verdict.UNKNOWN,
            claim=claim.claim,
            detail=control.detail,
            mend="" if control.held else "trust no line of this receipt before it is known why",
            evidence=paths,
        )
        return CellResult(id=self.id, lines=(line,), controls=(control,), artifacts=artifacts)

    def _scenario(self) -> Scenario:
        return Scenario(
            title=self.title,
            job=Job(
                workload=WorkloadName.DDP,
                nproc_per_node=RANKS,
                backend=self.backend,
                timeout_s=self.timeout_s,
            ),
            fault=Fault(kind=FaultKind.HOLD, rank=1, before=Before(op="all_reduce", nth=4)),
            recorder=Recorder(buffer_size=0),
            expect=Expect(culprit=1),
        )


def _judged(name: str, result: DrillResult, evidence: tuple[str, ...]) -> Control:
    """By the check that looks at what the recorder left; another failing check proves nothing of it."""
    found = next((check for check in result.checks if check.name == CHECK), None)
    return Control(
        name=name,
        claim="dumps of a recorder that is switched off are found empty",
        got=found.verdict if found is not None else Verdict.UNKNOWN,
        detail=f"{CHECK}: {found.detail}" if found is not None else f"the check {CHECK} did not run",
        evidence=evidence,
    )
