"""The cell of the checkpoint drill: every ordered pair of the plan's stacks, the way back, the negative controls."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hangdrill.certify.cells import CellContext, CellResult, Claim, Needs
from hangdrill.certify.checkpoint_attempts import Attempt, DrillOptions, DrillStack, Variant
from hangdrill.certify.checkpoint_controls import copy_of, file_controls, flip_byte
from hangdrill.certify.checkpoint_files import sum_files
from hangdrill.certify.checkpoint_jobs import script_command
from hangdrill.certify.checkpoint_lines import (
    CLAIMS,
    KnownGood,
    checkpoint_lines,
    one_way_difference,
    unresolved_of,
)
from hangdrill.certify.checkpoint_notes import differences, is_empty, size_text
from hangdrill.certify.checkpoint_pairs import PairDrill, PairTable, SavedCheckpoint, drill_pairs
from hangdrill.certify.stacks import BASELINE, CANDIDATE
from hangdrill.model.certify_plan import CertifyPlan, CheckpointPlan
from hangdrill.model.errors import UsageError
from hangdrill.model.receipt import CheckpointOutcome, Control, Item
from hangdrill.model.verdict import Verdict

__all__ = ["CheckpointCell", "check_drill", "checkpoint_cells", "variants_of"]

MOST_LIMIT_S = 604_800.0
JOB_S = 7.0
"""One job of two ranks that import torch and restore four tiny checkpoints, on an idle machine."""


def checkpoint_cells(plan: CertifyPlan) -> tuple["CheckpointCell", ...]:
    """One cell: the pairs need one another to tell version trouble from other trouble. UsageError before any runs."""
    check_drill(plan.checkpoint)
    return (CheckpointCell(plan),)


def variants_of(plan: CheckpointPlan) -> tuple[Variant, ...]:
    """Every layout in every mode, and the user's own script last. UsageError when half of the script is missing."""
    if bool(plan.save) != bool(plan.restore):
        missing = "restore" if plan.save else "save"
        raise UsageError(
            "save and restore belong together",
            where=f"checkpoint.{missing}",
            next_step="give both command lines, or none",
        )
    built_in = tuple(Variant(layout=layout, mode=mode) for layout in plan.layouts for mode in plan.modes)
    return (*built_in, *((Variant(layout="script"),) if plan.save else ()))


def check_drill(plan: CheckpointPlan) -> None:
    """UsageError for a drill that cannot be run."""
    if not variants_of(plan):
        raise UsageError("nothing to save", where="checkpoint", next_step="name at least one layout and one mode")
    if not 0 < plan.limit_s <= MOST_LIMIT_S:
        raise UsageError(
            f"it must be more than 0, and at most {MOST_LIMIT_S:g}, got {plan.limit_s:g}",
            where="checkpoint.limit_s",
            next_step="give seconds",
        )
    for key, template in (("save", plan.save), ("restore", plan.restore)):
        if template:
            script_command(template, key=key, python="python", checkpoint=Path("checkpoint"))


class CheckpointCell:
    """Needs the baseline and the candidate; a further stack that is missing makes its own rows unknown."""

    id = "checkpoint"
    takes_images = True
    topology = ""
    title = "save and restore a checkpoint on every ordered pair of stacks"
    goes_on = True

    def __init__(self, plan: CertifyPlan) -> None:
        self._plan = plan
        self._names = (BASELINE, CANDIDATE, *(stack.name for stack in plan.checkpoint.stack))

    @property
    def needs(self) -> Needs:
        """Both sides; GPUs where the backend uses them."""
        work = self._plan.workload
        return Needs(stacks=(BASELINE, CANDIDATE), gpus=work.nproc_per_node if "nccl" in work.backend else 0)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The lines of the checklist."""
        return tuple(Claim(id=name, item=Item.CHECKPOINT, claim=text) for name, text in CLAIMS.items())

    @property
    def estimate_s(self) -> float:
        """A job for each save, one a stack that restores, one more after each refused checkpoint, and the control."""
        stacks = len(self._names)
        return JOB_S * (2 * stacks + (stacks - 1) * len(variants_of(self._plan.checkpoint)) + 1)

    def run(self, context: CellContext) -> CellResult:
        """The whole drill."""
        drill = _drill(context)
        stacks = [_stack(context, name) for name in self._names]
        table = drill_pairs(drill, stacks, duplicated=CANDIDATE, restored_last=BASELINE)
        by_name = {stack.name: stack for stack in stacks}
        known = _known_good(drill, table, by_name, self._plan.checkpoint)
        copies = drill.evidence(each.copy for each in table.saved if each.copy is not None)
        declared = self._plan.declared
        lines = checkpoint_lines(table.pairs, known, copies=copies, declared=declared)
        torch = (context.stacks[BASELINE].torch, context.stacks[CANDIDATE].torch)
        listed = context.cell_dir / "pairs.json"
        listed.write_bytes(msgspec.json.format(msgspec.json.encode(table.pairs), indent=2))
        controls = _controls(drill, table, by_name[CANDIDATE], context.cell_dir / "controls")
        named = {path for row in table.pairs for path in row.evidence} | set(known.evidence)
        named |= {path for control in controls for path in control.evidence}
        return CellResult(
            id=self.id,
            lines=lines,
            differences=one_way_difference(table.pairs, torch=torch, declared=declared),
            checkpoint_pairs=table.pairs,
            controls=controls,
            unresolved=unresolved_of(known, table.pairs),
            artifacts=context.evidence(listed, *(context.out_dir / path for path in sorted(named))),
        )


def _drill(context: CellContext) -> PairDrill:
    plan = context.plan
    options = DrillOptions(
        variants=variants_of(plan.checkpoint),
        cwd=context.plan_dir,
        ranks=plan.workload.nproc_per_node,
        backend=plan.workload.backend,
        limit_s=plan.checkpoint.limit_s,
        save=plan.checkpoint.save,
        restore=plan.checkpoint.restore,
    )
    return PairDrill(
        options,
        work_dir=context.cell_dir,
        out_dir=context.out_dir,
        interrupt=context.interrupt,
        tell=lambda text: context.listener.phase("checkpoint", text),
        goes_on=True,
    )


def _stack(context: CellContext, name: str) -> DrillStack:
    stack = context.stacks[name]
    return DrillStack(
        name=name,
        python=stack.python,
        environ=context.job_environ(name),
        missing=stack.missing,
        torch=stack.torch,
        place=context.place_of(name),
    )


def _known_good(
    drill: PairDrill, table: PairTable, stacks: Mapping[str, DrillStack], plan: CheckpointPlan
) -> KnownGood:
    """What there is to go back to; the plan's own older checkpoint is read on both stacks and compared."""
    own = _first(table.saved, BASELINE)
    known = KnownGood(own="nothing")
    if own is not None:
        step = next((note.values["step"] for note in own.notes.values() if "step" in note.values), "")
        known = KnownGood(own=drill.evidence([own.directory])[0], step=step)
    if plan.known_good is None:
        return known
    directory = Path(plan.known_good).expanduser().absolute()
    read = {name: drill.read(directory, stacks[name]) for name in (CANDIDATE, BASELINE)}
    verdict, detail = _compare_reads(read[BASELINE], read[CANDIDATE])
    return msgspec.structs.replace(
        known,
        given=str(directory),
        verdict=verdict,
        detail=detail,
        evidence=drill.evidence(path for attempt in read.values() for path in attempt.evidence),
    )


def _compare_reads(baseline: Attempt, candidate: Attempt) -> tuple[Verdict, str]:
    """The baseline must read it. The candidate's reading shows that both read the same."""
    if baseline.trouble is not None:
        unknown = baseline.trouble is CheckpointOutcome.UNKNOWN
        return Verdict.UNKNOWN if unknown else Verdict.FAIL, f"the baseline does not read it: {baseline.detail}"
    if is_empty(baseline.notes):
        return Verdict.UNKNOWN, "there is nothing in it: no tensor and no value"
    text = f"the baseline reads {size_text(baseline.notes)}"
    if candidate.trouble is CheckpointOutcome.UNKNOWN:  # then nobody has seen it after the candidate
        return Verdict.UNKNOWN, f"{text}; the candidate never tried: {candidate.detail}"
    if candidate.trouble is not None:
        return Verdict.PASS, f"{text}; the candidate does not: {candidate.detail}"
    wrong = differences(baseline.notes, candidate.notes)
    return (
        (Verdict.FAIL, f"{text}, the candidate others: {wrong[0]}")
        if wrong
        else (Verdict.PASS, f"{text}, and the candidate the same")
    )


def _controls(drill: PairDrill, table: PairTable, stack: DrillStack, work_dir: Path) -> tuple[Control, ...]:
    """Broken on purpose. Without a checkpoint to break there is no control, and the lines above are no PASS either."""
    shutil.rmtree(work_dir, ignore_errors=True)  # of a run that was interrupted
    whole = _first(table.saved, stack.name)
    if whole is None or stack.missing or whole.variant.is_script:
        return ()
    return (*file_controls(whole.directory, work_dir), _silent_damage(drill, whole, stack, work_dir))


def _silent_damage(drill: PairDrill, whole: SavedCheckpoint, stack: DrillStack, work_dir: Path) -> Control:
    """One other byte in a tensor, and the files are taken for what was saved: only the comparison can tell."""
    broken = copy_of(whole.directory, work_dir / "restored" / whole.variant.name)
    where = flip_byte(broken)
    planted = msgspec.structs.replace(whole, stack="control", directory=broken, copy=None, manifest=sum_files(broken))
    row = drill.restore([planted], stack)[0]
    told = row.outcome in (CheckpointOutcome.UNEQUAL, CheckpointOutcome.REFUSED)
    return Control(
        name="checkpoint/other-bytes",
        claim="a restored tensor with one other byte is not called equal",
        got=Verdict.FAIL if told else Verdict.UNKNOWN if row.outcome is CheckpointOutcome.UNKNOWN else Verdict.PASS,
        detail=f"{where}: {row.outcome.value}: {row.detail}",
        evidence=row.evidence,
    )


def _first(saved: Sequence[SavedCheckpoint], stack: str) -> SavedCheckpoint | None:
    return next((each for each in saved if each.stack == stack and each.trouble is None), None)
