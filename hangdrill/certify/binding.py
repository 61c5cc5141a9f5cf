"""The device-binding cell: what each stack does with the ways to bind a rank to a GPU, tried; and a look at the script.

Each attempt is a job of its own, for a refusal may leave a rank that can do nothing else.
"""

from pathlib import Path

import msgspec

from hangdrill.certify.binding_judge import ATTEMPTS, CPU_ATTEMPTS, Answer, Attempt, Tried, judge_attempt, judge_pair
from hangdrill.certify.canary_jobs import CanaryJob, run_canary
from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.canary_runs import run_of_stack
from hangdrill.certify.cells import CellContext, CellResult, Claim, Needs
from hangdrill.certify.stacks import BASELINE, CANDIDATE
from hangdrill.model.certify_plan import CertifyPlan, Topology
from hangdrill.model.preflight import Severity
from hangdrill.model.receipt import Difference, Item, Line
from hangdrill.model.verdict import Verdict
from hangdrill.preflight.devices import device_findings
from hangdrill.preflight.script import read_script
from hangdrill.preflight.surroundings import Job, Place, Surroundings, Torch

__all__ = ["BindingCell", "binding_cells", "script_line"]

GPUS = 2
LIMIT_S, TIMEOUT_S = 45.0, 20.0
"""Of one part, and of the process group: a refusal comes at once, and what takes longer hangs."""
JOB_S = 10.0
LEGACY = "nccl-legacy"
SCRIPT = "script"


def binding_cells(plan: CertifyPlan) -> tuple["BindingCell", ...]:
    """One cell, of every plan."""
    return (BindingCell(plan),)


class BindingCell:
    """Both stacks, every attempt; on a backend without GPUs only where its ranks work."""

    id = "binding"
    takes_images = True
    topology = ""
    title = "bind ranks to GPUs in every way, also the wrong ones, on both stacks"

    def __init__(self, plan: CertifyPlan) -> None:
        self._plan = plan
        self._on_gpus = "nccl" in plan.workload.backend
        self._attempts = ATTEMPTS if self._on_gpus else CPU_ATTEMPTS

    @property
    def needs(self) -> Needs:
        """Both stacks, and two GPUs where the backend uses them."""
        return Needs(gpus=GPUS if self._on_gpus else 0)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """A line for each attempt, and one for the script if there is one."""
        several = Topology.MULTI_GPU_PROCESS.value
        tried = [
            Claim(
                id=f"{self.id}/{one.name}",
                item=Item.BINDING,
                claim=one.claim,
                topology=several if one.alone else "",
            )
            for one in self._attempts
        ]
        text = "the script binds its ranks as the candidate's backend needs it, as far as its text shows"
        script = [Claim(id=f"{self.id}/{SCRIPT}", item=Item.BINDING, claim=text)] if self._plan.workload.script else []
        return (*tried, *script)

    @property
    def estimate_s(self) -> float:
        """A job for each attempt and stack."""
        return 2 * JOB_S * len(self._attempts)

    def run(self, context: CellContext) -> CellResult:
        """Every attempt on the baseline, then on the candidate."""
        claims = {claim.id.removeprefix(f"{self.id}/"): claim for claim in self.claims}
        runs: dict[str, CanaryRun] = {}
        lines: list[Line] = []
        differences: list[Difference] = []
        for attempt in self._attempts:
            old, new = (self._tried(context, attempt, side, runs) for side in (BASELINE, CANDIDATE))
            note = self._with_legacy(context, attempt, new, runs)
            line, difference = judge_pair(claims[attempt.name], attempt, old, new, note=note)
            lines.append(line)
            differences += [difference] if difference is not None else []
        if SCRIPT in claims:
            lines.append(script_line(claims[SCRIPT], context))
        path = context.cell_dir / "runs.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(runs), indent=1))
        files = context.evidence(path)
        evidence = tuple(file.path for file in files)
        return CellResult(
            id=self.id,
            lines=tuple(msgspec.structs.replace(line, evidence=evidence) for line in lines),
            differences=tuple(differences),
            artifacts=files,
        )

    def _tried(
        self, context: CellContext, attempt: Attempt, stack: str, runs: dict[str, CanaryRun], backend: str = ""
    ) -> Tried:
        name = "-".join(part for part in (attempt.name, stack, backend) if part)
        run = runs[name] = run_canary(
            CanaryJob(
                python=context.stacks[stack].python,
                environ=context.job_environ(stack),
                place=context.place_of(stack),
                directory=context.cell_dir / name,
                backend=backend or context.plan.workload.backend,
                ranks=1 if attempt.alone else GPUS,
                parts=(attempt.part,) if attempt.part else (),
                options=("--bind", attempt.bind, "--timeout-s", f"{TIMEOUT_S:g}"),
                limit_s=LIMIT_S,
                deadline_s=2 * LIMIT_S + JOB_S,
            ),
            context.interrupt,
        )
        return judge_attempt(attempt, run_of_stack(run, context.stacks[stack]))

    def _with_legacy(self, context: CellContext, attempt: Attempt, new: Tried, runs: dict[str, CanaryRun]) -> str:
        """Several GPUs in one process need the old implementation: whether that still helps is tried too."""
        if not attempt.alone or new.answer is not Answer.REFUSED or context.plan.workload.backend != "nccl":
            return ""
        return f"; candidate with {LEGACY}: {self._tried(context, attempt, CANDIDATE, runs, LEGACY).text}"


def script_line(claim: Claim, context: CellContext) -> Line:
    """The static look of preflight, at the plan's script: missing device_id, several devices, tests of the class."""
    plan, stack = context.plan, context.stacks[CANDIDATE]
    script = read_script(Path(plan.workload.script or ""))
    gpus = len(stack.fingerprint.gpus) if stack.fingerprint is not None else None
    facts = Surroundings(
        environ=context.job_environ(CANDIDATE),
        torch=Torch(version=stack.torch, gpus=gpus) if stack.torch else None,
        place=Place(prefix="", directory="", chosen_by=""),
        job=Job(
            launcher="torchrun",
            backend=plan.workload.backend,
            nproc_per_node=plan.workload.nproc_per_node,
            script=script,
        ),
    )
    line = Line(
        id=claim.id, item=claim.item, verdict=Verdict.PASS, claim=claim.claim, detail=f"{script.path}: nothing found"
    )
    if script.problem:
        mend = "name the training script itself, in Python"
        return msgspec.structs.replace(line, verdict=Verdict.UNKNOWN, detail=script.problem, mend=mend)
    findings = [one for one in device_findings(facts) if one.severity is not Severity.NOTE]
    if not findings:
        return line
    unknown = all(one.severity is Severity.UNKNOWN for one in findings)
    return msgspec.structs.replace(
        line,
        verdict=Verdict.UNKNOWN if unknown else Verdict.FAIL,
        detail="; ".join(f"{one.where}: {one.what}" for one in findings),
        mend="; ".join(dict.fromkeys(one.mend for one in findings)),
    )
