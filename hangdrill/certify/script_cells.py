"""The plan's own script (`workload.script`): run on both stacks, pair by pair, and drilled on the candidate.

The built-in workloads say what a stack does; only the user's script says what it does to the user's work.
"""

import shutil
from pathlib import Path

import msgspec

from hangdrill.certify.canary_results import chosen_of, evidence_of, judge_all, left_out_lines, samples_by_name
from hangdrill.certify.canary_runs import PairRuns
from hangdrill.certify.cells import CellContext, CellResult, Claim, Needs
from hangdrill.certify.drills import IMPORT_S, WITHIN_S, drill_on, line_of_drill
from hangdrill.certify.running import key_of
from hangdrill.certify.script_jobs import arguments_of, placement_of, run_script_pairs, seed_variables
from hangdrill.certify.script_lines import ends_line, measured_of_script, same_work_line, with_note
from hangdrill.certify.stacks import CANDIDATE
from hangdrill.model.certify_plan import CertifyPlan, Topology
from hangdrill.model.errors import MachineError
from hangdrill.model.receipt import EvidenceFile, Item
from hangdrill.model.scenario import Before, Expect, Fault, FaultKind, Job, Recorder, Scenario, Trigger
from hangdrill.model.verdict import Verdict

__all__ = ["ScriptCell", "ScriptDrillCell", "script_cells", "script_scenario"]

SCRIPT_S = 30.0
"""Nobody knows how long a script takes: a guess, which the cell's title says."""
HELD_BEFORE = 3
"""The operation of a group of all ranks before which one is held: every training script comes to it."""
CONFIRMED = "fault-confirmed"
NOT_REACHED = "let the script come to a third operation of a group of all ranks: see job.log in its run directory"
SEVERAL = 2
AT = Topology.SINGLE_NODE.value


def script_cells(plan: CertifyPlan) -> "tuple[ScriptCell | ScriptDrillCell, ...]":
    """None without a script. One rank alone waits for nobody, and is not drilled."""
    if plan.workload.script is None:
        return ()
    drill = (ScriptDrillCell(plan),) if plan.workload.nproc_per_node >= SEVERAL else ()
    return (ScriptCell(plan), *drill)


class ScriptCell:
    """The script under torchrun on both stacks, with the same arguments, directory and seed."""

    id = "canary/script"
    topology = ""
    takes_images = True
    goes_on = True

    def __init__(self, plan: CertifyPlan) -> None:
        self._plan, self._script = plan, plan.workload.script
        self._chosen, self._left_out = chosen_of(measured_of_script(), plan)
        self._run_s = min(SCRIPT_S, plan.workload.deadline_s)
        self.title = f"your script on both stacks, pair by pair ({self._run_s:g} s a run is a guess)"

    @property
    def needs(self) -> Needs:
        """Both stacks; a GPU a rank where the backend uses them."""
        return Needs(gpus=_gpus(self._plan))

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Two claims of the script's end and its work, then the measures."""
        ends = "every run of your script ends with exit code 0, on both stacks"
        work = "your script enters as many operations and makes as many optimizer steps, on every rank, in every run"
        return (
            Claim(id=f"{self.id}/ends", item=Item.WORK, topology=AT, claim=ends),
            Claim(id=f"{self.id}/same-work", item=Item.WORK, topology=AT, claim=work),
            *(
                Claim(id=f"{self.id}/{one.name}", item=one.item, topology=AT, claim=one.claim)
                for one in (*self._chosen, *self._left_out)
            ),
        )

    @property
    def estimate_s(self) -> float:
        """Two runs a pair."""
        return 2 * self._plan.workload.pairs * self._run_s

    def run(self, context: CellContext) -> CellResult:
        """All pairs. Raises MachineError when the script was edited meanwhile: its runs are of two workloads then."""
        began_with = key_of(self, self._plan, context.stacks)

        def require_same() -> None:
            if key_of(self, self._plan, context.stacks) != began_with:
                what, hint = "your script was changed while it was measured", "let nothing change it, and add --resume"
                raise MachineError(what, where=str(self._script), next_step=hint)

        runs = run_script_pairs(context, require_same)
        return self.judge(runs, evidence_of(context, runs), placement=placement_of(context.stacks))

    def judge(self, runs: PairRuns, files: tuple[EvidenceFile, ...], *, placement: str = "auto") -> CellResult:
        """Every line from the same runs."""
        paths = tuple(file.path for file in files)
        ends = ends_line(self.claims[0], runs, paths)
        same, other_work = same_work_line(self.claims[1], runs, paths, placement=placement)
        measured, left_out = chosen_of(measured_of_script(runs), self._plan)
        judged = judge_all(measured, runs, self._plan, cell=self.id, evidence=paths)
        found = [one.difference for one in judged if one.difference is not None]
        return CellResult(
            id=self.id,
            lines=(
                ends,
                same,
                *(with_note(one.line, same) for one in judged),
                *left_out_lines(self.claims, left_out),
            ),
            differences=(*((other_work,) if other_work is not None else ()), *found),
            samples=samples_by_name(measured, judged),
            artifacts=files,
        )


class ScriptDrillCell:
    """The last rank of the script is held on the candidate; the collector must bring every rank's evidence."""

    id = "drills/collector/script"
    topology = ""
    takes_images = True
    title = "a rank of your script is held, and the collector pulls"

    def __init__(self, plan: CertifyPlan) -> None:
        self._plan = plan
        self._home = Path(plan.workload.script or "").parent

    @property
    def needs(self) -> Needs:
        """The candidate; a GPU a rank where the backend uses them."""
        return Needs(stacks=(CANDIDATE,), gpus=_gpus(self._plan))

    @property
    def claims(self) -> tuple[Claim, ...]:
        """One line."""
        claim = "a hang of your script on the candidate leaves evidence of every rank, and it names the culprit"
        return (Claim(id=f"{self.id}/evidence", item=Item.RECORDER, topology=AT, claim=claim),)

    @property
    def estimate_s(self) -> float:
        """Start, stall and teardown."""
        return IMPORT_S + 1.5 * self._plan.workload.timeout_s

    def run(self, context: CellContext) -> CellResult:
        """One drill."""
        out = context.cell_dir / "out"
        env = seed_variables(self._plan.seed, context.job_environ(CANDIDATE))
        args = arguments_of(self._plan.workload.args, out)
        volumes = (f"{out}:{out}",) if out.exists() and context.stacks[CANDIDATE].image else ()
        scenario = script_scenario(self._plan, args=args, env=env, volumes=volumes)
        try:
            result, files = drill_on(context, CANDIDATE, scenario, name="run", cwd=self._home)
        finally:
            shutil.rmtree(out, ignore_errors=True)
        line = line_of_drill(self.claims[0], result, files)
        if any(check.name == CONFIRMED and check.verdict is not Verdict.PASS for check in result.checks):
            line = msgspec.structs.replace(line, mend=NOT_REACHED)
        return CellResult(id=self.id, lines=(line,), artifacts=files)


def script_scenario(
    plan: CertifyPlan, *, args: tuple[str, ...], env: dict[str, str], volumes: tuple[str, ...] = ()
) -> Scenario:
    """The plan's script, its last rank held before the third operation of a group of all ranks, whatever its name.
    volumes: of a job in an image."""
    work = plan.workload
    ranks = work.nproc_per_node
    return Scenario(
        title="certify: your script, the last rank held, collector",
        job=Job(
            script=work.script,
            args=args,
            nproc_per_node=ranks,
            backend=work.backend,
            timeout_s=work.timeout_s,
            env=env,
            volumes=volumes,
        ),
        fault=Fault(
            kind=FaultKind.HOLD, rank=ranks - 1, before=Before(group=tuple(range(ranks)), op=None, nth=HELD_BEFORE)
        ),
        recorder=Recorder(trigger=Trigger.COLLECTOR),
        expect=Expect(culprit=ranks - 1, within_s=WITHIN_S[Trigger.COLLECTOR]),
    )


def _gpus(plan: CertifyPlan) -> int:
    return plan.workload.nproc_per_node if "nccl" in plan.workload.backend else 0
