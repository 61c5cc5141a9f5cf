"""A backend that torch 2.15 did not replace, such as gloo, has no fallback: there is nothing to roll back to.

That is proven and not assumed: the class of the process group, on every rank of both stacks, must be the same. The
lines of the fallback are then left out, and the receipt's annex says why. A plan whose backend is NCCL has them.
"""

import msgspec

from hangdrill.certify.canary_jobs import CanaryJob, run_canary
from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.canary_runs import run_of_stack
from hangdrill.certify.cells import CellContext, CellResult, Claim, Needs
from hangdrill.certify.stacks import BASELINE, CANDIDATE
from hangdrill.model.certify_plan import CertifyPlan
from hangdrill.model.receipt import Item, Line, RollbackRecord
from hangdrill.model.verdict import Verdict

__all__ = ["NothingReplacedCell", "judge_classes"]

JOB_S = 8.0
WAY_BACK = "the way back is the baseline stack; see checkpoint/way-back"


class NothingReplacedCell:
    """One short job on each stack."""

    id = "rollback"
    takes_images = True
    topology = ""
    title = "is there anything to roll back to?"
    needs = Needs()
    estimate_s = 2 * JOB_S

    def __init__(self, plan: CertifyPlan) -> None:
        self._plan = plan

    @property
    def claims(self) -> tuple[Claim, ...]:
        """One line."""
        backend = self._plan.workload.backend
        text = (
            f"every rank of both stacks runs the same implementation of {backend}, so that there is none to go back to"
        )
        return (Claim(id=f"{self.id}/implementation", item=Item.ROLLBACK, claim=text),)

    def run(self, context: CellContext) -> CellResult:
        """Both jobs."""
        runs = {name: self._run_one(context, name) for name in (BASELINE, CANDIDATE)}
        path = context.cell_dir / "runs.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(runs), indent=1))
        files = context.evidence(path)
        verdict, detail = judge_classes(runs)
        (claim,) = self.claims
        line = Line(
            id=claim.id,
            item=claim.item,
            verdict=verdict,
            claim=claim.claim,
            detail=detail,
            mend=self._mend(verdict),
            evidence=tuple(file.path for file in files),
        )
        said = self._plan.rollback
        record = RollbackRecord(
            owner=said.owner,
            where=said.where,
            verify=said.verify,
            expires=said.expires,
            verdict=verdict,
            detail=f"torch's fallback is for NCCL alone and does not apply to {self._plan.workload.backend}: {detail}",
        )
        return CellResult(id=self.id, lines=(line,), rollback=record, artifacts=files)

    def _run_one(self, context: CellContext, stack: str) -> CanaryRun:
        work = context.plan.workload
        run = run_canary(
            CanaryJob(
                python=context.stacks[stack].python,
                environ=context.job_environ(stack),
                place=context.place_of(stack),
                directory=context.cell_dir / stack,
                backend=work.backend,
                ranks=work.nproc_per_node,
                deadline_s=work.deadline_s,
            ),
            context.interrupt,
        )
        return run_of_stack(run, context.stacks[stack])

    def _mend(self, verdict: Verdict) -> str:
        if verdict is Verdict.FAIL:
            return f"hangdrill knows no fallback for {self._plan.workload.backend}: {WAY_BACK}"
        return "" if verdict is Verdict.PASS else "see the logs beside runs.json"


def judge_classes(runs: dict[str, CanaryRun]) -> tuple[Verdict, str]:
    """(verdict, what was seen). UNKNOWN when a rank of either stack left no class."""
    classes: dict[str, set[str]] = {}
    for name, run in runs.items():
        found = [record.facts.backend_class for record in run.of_attempt().values()]
        if run.missing() or not found or not all(found):
            return Verdict.UNKNOWN, f"{name}: {run.trouble() or 'a rank made no process group'}"
        classes[name] = set(found)
    if len(set().union(*classes.values())) == 1:
        ranks = sum(run.world_size for run in runs.values())
        return Verdict.PASS, f"{next(iter(classes[BASELINE]))} on all {ranks} ranks of both: nothing was replaced"
    told = "; ".join(f"{name} {', '.join(sorted(found))}" for name, found in classes.items())
    return Verdict.FAIL, f"the implementations differ: {told}"
