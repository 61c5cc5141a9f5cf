"""The rollback drill: both roads back to the old NCCL implementation, proven on every rank, and the mistakes caught.

Without GPUs the roads are UNKNOWN, but what torch has registered in every rank is looked at all the same: a real job on
gloo shows whether a setting would take, and the mistakes that are planted there are found or not.
"""

from collections.abc import Sequence
from datetime import date, datetime, timezone

import msgspec

from hangdrill.certify.canary_jobs import CanaryJob, run_canary
from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.canary_runs import run_of_stack
from hangdrill.certify.cells import CellContext, CellResult, Claim, Needs
from hangdrill.certify.drills import drill_on, hold_scenario, line_of_drill
from hangdrill.certify.rollback_judge import (
    LAST_RELEASE,
    ROADS,
    Proven,
    Road,
    judge_road,
    record_problems,
    release_of,
)
from hangdrill.certify.rollback_none import NothingReplacedCell
from hangdrill.certify.rollback_plants import PLANTS, plant_controls
from hangdrill.certify.stacks import CANDIDATE
from hangdrill.model.certify_plan import CertifyPlan, RollbackPlan, Topology
from hangdrill.model.receipt import EvidenceFile, Item, Line, RollbackRecord, RollbackRoad
from hangdrill.model.scenario import Trigger
from hangdrill.model.verdict import Verdict, merge

__all__ = ["RollbackCell", "record_line", "rollback_cells"]

SMOKE_PARTS = ("latency", "p2p", "dp", "checkpoint")
SMOKE_MEASURES = ("dp_step_s", "save_s", "restore_s")
NEXT_GPU = "run it on a host with GPUs: only there the class of the process group shows what ran"
JOB_S = 15.0


def rollback_cells(plan: CertifyPlan) -> tuple["RollbackCell | NothingReplacedCell", ...]:
    """One cell, of every plan; only NCCL was replaced, and only it has a fallback."""
    return (RollbackCell(plan) if "nccl" in plan.workload.backend else NothingReplacedCell(plan),)


class RollbackCell:
    """The candidate, by each road of the plan."""

    id = "rollback"
    takes_images = True
    topology = ""
    title = "roll back to the old implementation, and catch the mistakes with it"
    needs = Needs(stacks=(CANDIDATE,))

    def __init__(self, plan: CertifyPlan) -> None:
        self._plan = plan
        self._roads = tuple(ROADS[road] for road in plan.rollback.roads)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Who may pull it; for each road the proof, and its work; the hang of a job that was rolled back."""
        texts = {"record": "the fallback has an owner, a place, a way to verify it, and a date that is not over"}
        for key, road in zip(self._plan.rollback.roads, self._roads, strict=True):
            texts[f"{key}/proof"] = (
                f"with {road.name} every rank of the candidate runs {_old()}, from before its group is made"
            )
            texts[f"{key}/smoke"] = f"with {road.name} the candidate's job trains, communicates, saves and restores"
        texts["hang"] = "the hang of a job of the candidate that was rolled back leaves evidence of every rank"
        return tuple(Claim(id=f"{self.id}/{key}", item=Item.ROLLBACK, claim=text) for key, text in texts.items())

    @property
    def estimate_s(self) -> float:
        """A job for each road, two with planted mistakes, a drill."""
        return JOB_S * (len(self._roads) + len(PLANTS) + 1)

    def run(self, context: CellContext) -> CellResult:
        """Everything that this host can show."""
        claims = {claim.id.removeprefix(f"{self.id}/"): claim for claim in self.claims}
        record = record_line(claims["record"], self._plan.rollback, _today())
        runs = {road.name: self._run_road(context, road) for road in self._roads}
        files = _keep(context, runs)
        proven = {name: judge_road(road, runs[name]) for name, road in zip(runs, self._roads, strict=True)}
        lines = [record]
        for key, road in zip(self._plan.rollback.roads, self._roads, strict=True):
            lines.append(_proof_line(claims[f"{key}/proof"], context, proven[road.name], files))
            lines.append(_smoke_line(claims[f"{key}/smoke"], runs[road.name], proven[road.name], files))
        hang, more = self._hang(context, claims["hang"], proven)
        controls = tuple(plant_controls(context))
        roads = tuple(
            RollbackRoad(
                name=name,
                verdict=one.verdict,
                detail=one.detail,
                ranks=one.ranks,
                evidence=tuple(f.path for f in files),
            )
            for name, one in proven.items()
        )
        plan = self._plan.rollback
        return CellResult(
            id=self.id,
            lines=(*lines, hang),
            rollback=RollbackRecord(
                owner=plan.owner,
                where=plan.where,
                verify=plan.verify,
                expires=plan.expires,
                verdict=merge(line.verdict for line in (*lines, hang)),
                detail="; ".join(f"{name}: {one.detail}" for name, one in proven.items()),
                roads=roads,
            ),
            controls=controls,
            artifacts=(*files, *more),
        )

    def _run_road(self, context: CellContext, road: Road) -> CanaryRun:
        """With a group of that backend where there are GPUs; else on gloo, to see what torch has registered."""
        work = context.plan.workload
        with_gpus = _gpus(context) >= work.nproc_per_node
        run = run_canary(
            CanaryJob(
                python=context.stacks[CANDIDATE].python,
                environ=context.job_environ(CANDIDATE),
                place=context.place_of(CANDIDATE),
                directory=context.cell_dir / road.name.replace("=", "-"),
                backend=road.backend if with_gpus else "gloo",
                ranks=work.nproc_per_node,
                parts=SMOKE_PARTS if with_gpus else ("latency",),
                options=("--steps", str(work.steps), "--seed", str(context.plan.seed)),
                variables=road.variables,
                deadline_s=work.deadline_s,
            ),
            context.interrupt,
        )
        return run_of_stack(run, context.stacks[CANDIDATE])

    def _hang(
        self, context: CellContext, claim: Claim, proven: dict[str, Proven]
    ) -> tuple[Line, tuple[EvidenceFile, ...]]:
        """By the first road that was proven."""
        taken = next((road for road in self._roads if proven[road.name].verdict is Verdict.PASS), None)
        if taken is None:
            why = "no road was proven, so there is nothing to drill"
            return _unknown(claim, why, NEXT_GPU), ()
        scenario = hold_scenario(
            context.plan, Topology.SINGLE_NODE, Trigger.COLLECTOR, backend=taken.backend, env=taken.variables
        )
        result, files = drill_on(context, CANDIDATE, scenario, name="hang")
        return line_of_drill(claim, result, files), files


def record_line(claim: Claim, plan: RollbackPlan, today: date) -> Line:
    """An ownerless or expired fallback is refused; a plan that names none at all is UNKNOWN."""
    line = Line(
        id=claim.id,
        item=claim.item,
        verdict=Verdict.PASS,
        claim=claim.claim,
        detail=f"{plan.owner} may pull it; it lives in {plan.where}; verify with {plan.verify}; until {plan.expires}",
    )
    if not any((plan.owner, plan.where, plan.verify, plan.expires)):
        return _unknown(claim, "the plan names no fallback", "add [rollback] owner, where, verify and expires")
    problems = list(record_problems(plan, today))
    if not problems:
        return line
    detail, mend = ("; ".join(parts) for parts in zip(*problems, strict=True))
    return msgspec.structs.replace(line, verdict=Verdict.FAIL, detail=detail, mend=mend)


def _proof_line(claim: Claim, context: CellContext, proven: Proven, files: Sequence[EvidenceFile]) -> Line:
    """The road's verdict; a torch that is too new has none."""
    release = release_of(context.stacks[CANDIDATE].torch)
    mend = {Verdict.PASS: "", Verdict.UNKNOWN: NEXT_GPU}.get(
        proven.verdict, "set it in the launcher's environment of every rank, to the exact value 0, before Python starts"
    )
    detail = proven.detail
    if release is not None and release > LAST_RELEASE:
        detail += (
            f"; torch {release[0]}.{release[1]} is later than {LAST_RELEASE[0]}.{LAST_RELEASE[1]}, the last with one"
        )
        mend = "there is no fallback any more: the way back is the baseline stack"
    evidence = tuple(file.path for file in files)
    return Line(
        id=claim.id,
        item=claim.item,
        verdict=proven.verdict,
        claim=claim.claim,
        detail=detail,
        mend=mend,
        evidence=evidence,
    )


def _smoke_line(claim: Claim, run: CanaryRun, proven: Proven, files: Sequence[EvidenceFile]) -> Line:
    """Says something only of a job that really was rolled back."""
    if proven.verdict is not Verdict.PASS:
        return _unknown(claim, "the job was not proven to be rolled back", NEXT_GPU)
    trouble = run.trouble()
    unseen = [name for name in SMOKE_MEASURES if run.slowest(name) is None]
    if unseen and not trouble:
        return _unknown(claim, f"not measured on every rank: {', '.join(unseen)}", "see the job's log")
    return Line(
        id=claim.id,
        item=claim.item,
        verdict=Verdict.FAIL if trouble else Verdict.PASS,
        claim=claim.claim,
        detail=trouble or f"measured: {', '.join(SMOKE_MEASURES)}",
        mend="see the job's log" if trouble else "",
        evidence=tuple(file.path for file in files),
    )


def _unknown(claim: Claim, why: str, next_step: str) -> Line:
    return Line(id=claim.id, item=claim.item, verdict=Verdict.UNKNOWN, claim=claim.claim, detail=why, mend=next_step)


def _keep(context: CellContext, runs: dict[str, CanaryRun]) -> tuple[EvidenceFile, ...]:
    path = context.cell_dir / "runs.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(runs), indent=1))
    return context.evidence(path)


def _gpus(context: CellContext) -> int:
    fingerprint = context.stacks[CANDIDATE].fingerprint
    return len(fingerprint.gpus) if fingerprint is not None else 0


def _old() -> str:
    return "the old implementation (ProcessGroupNCCL)"


def _today() -> date:
    return datetime.now(timezone.utc).date()
