"""Saving or restoring on one stack, checkpoint by checkpoint, until each has been tried: what each attempt came to.

One job tries them one after another. After one that failed, hung or died the next job goes on with the rest, so that
every restore begins in a process that nothing has gone wrong in.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from hangdrill.certify.checkpoint_jobs import Action, Job, JobEnd, built_in_command, run_job, script_command
from hangdrill.certify.checkpoint_notes import Note, note_files, read_notes
from hangdrill.certify.places import HERE, Place
from hangdrill.certify.stacks import require_torch
from hangdrill.drill.waiting import Interrupt
from hangdrill.model.receipt import CheckpointOutcome

__all__ = ["Attempt", "DrillOptions", "DrillStack", "Keeper", "NoopKeeper", "Task", "Variant", "try_all"]

NOTE_VARIABLE = "HANGDRILL_CHECKPOINT_NOTE"
"""As hangdrill.rank.checkpoint.notes knows it."""
DIED_BY = "a rank died of signal"


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One way to save: the layout of the training state, and how it is written."""

    layout: Literal["plain", "fsdp2", "script"]
    mode: Literal["sync", "async"] = "sync"

    @property
    def name(self) -> str:
        """As the rank's program, the directories and the table call it."""
        return "script" if self.is_script else f"{self.layout}-{self.mode}"

    @property
    def is_script(self) -> bool:
        """Whether the user's own command lines save and restore it."""
        return self.layout == "script"


class DrillStack(msgspec.Struct, frozen=True, kw_only=True):
    """A stack of the table. environ: of its jobs, whole. missing: why it cannot run any; empty when it can. torch: what
    its ranks must have; empty for any."""

    name: str
    python: str
    environ: dict[str, str]
    missing: str = ""
    torch: str = ""
    place: Place = HERE


class DrillOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the jobs are started. limit_s: one save or restore; start_s: until the ranks of a job have begun.

    save, restore: the user's command lines, for the variant `script`; limit_s is then the whole job's.
    """

    variants: tuple[Variant, ...]
    cwd: Path
    ranks: int = 2
    backend: str = "gloo"
    limit_s: float = 120.0
    start_s: float = 300.0
    save: str = ""
    restore: str = ""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint to save or restore. name: of its notes, unique in one job; it begins with the variant's."""

    name: str
    variant: Variant
    place: Path


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint saved or restored by one stack. trouble: None when every rank noted that it is done.

    evidence: the notes, the log of the job, and where a rank was that did not end.
    """

    notes: dict[int, Note]
    trouble: CheckpointOutcome | None = None
    detail: str = ""
    evidence: tuple[Path, ...] = ()


class Keeper(Protocol):
    """Keeps attempts that have ended, for a drill that goes on after an interruption."""

    def find(self, task: Task) -> Attempt | None:
        """The attempt of an earlier run that is still good."""

    def keep(self, task: Task, attempt: Attempt) -> None:
        """It has ended."""

    def forget(self, task: Task) -> None:
        """It begins anew."""


class NoopKeeper:
    """Keeps nothing."""

    def find(self, task: Task) -> Attempt | None:
        """None."""
        return None

    def keep(self, task: Task, attempt: Attempt) -> None:
        """Nothing."""

    def forget(self, task: Task) -> None:
        """Nothing."""


def try_all(
    action: Action,
    stack: DrillStack,
    tasks: Sequence[Task],
    options: DrillOptions,
    *,
    work_dir: Path,
    agent_path: Path,
    interrupt: Interrupt,
    keeper: Keeper | None = None,
) -> dict[str, Attempt]:
    """Try each, by its name; notes and logs go to `work_dir`. Raises MachineError, also when a rank had another torch
    than the stack, UsageError, Interrupted."""
    work_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    ranks = 1 if action == "read" else options.ranks
    keeper = keeper or NoopKeeper()
    found = {task.name: attempt for task in tasks if (attempt := keeper.find(task)) is not None}
    for task in tasks:
        if task.name not in found:
            keeper.forget(task)
    while left := [task for task in tasks if task.name not in found]:
        scripts = [task for task in left if task.variant.is_script]
        batch = [task for task in left if not task.variant.is_script] or scripts[:1]
        log = work_dir / f"job{len(list(work_dir.glob('job*.log')))}.log"
        job = _job(action, stack, batch, options, log=log, agent_path=agent_path)
        end = run_job(job, interrupt)
        for task in batch:
            attempt = _attempt(work_dir / task.name, task.variant, end, log, ranks)
            for note in attempt.notes.values():
                require_torch(stack.name, stack.torch, note.torch, rank=note.rank)
            found[task.name] = attempt
            keeper.keep(task, attempt)
            if attempt.trouble is not None:
                break
    return found


def _job(
    action: Action, stack: DrillStack, batch: Sequence[Task], options: DrillOptions, *, log: Path, agent_path: Path
) -> Job:
    first, extra = batch[0], {}
    if first.variant.is_script:
        template = options.save if action == "save" else options.restore
        command = script_command(template, key=action, python=stack.python, checkpoint=first.place)
        deadline_s = options.limit_s
        extra = {NOTE_VARIABLE: str(log.parent / first.name)}
    else:
        command = built_in_command(
            stack.python,
            action,
            {task.name: task.place for task in batch},
            notes=log.parent,
            ranks=1 if action == "read" else options.ranks,
            backend=options.backend,
            limit_s=options.limit_s,
        )
        deadline_s = options.start_s + options.limit_s * len(batch)
    return Job(
        command=command,
        python=stack.python,
        environ=stack.environ,
        agent_path=agent_path,
        cwd=options.cwd,
        log=log,
        deadline_s=deadline_s,
        extra=extra,
        place=stack.place,
        sees=() if action == "save" else tuple(task.place for task in batch),
        writes=tuple({task.place.parent for task in batch}) if action == "save" else (),
    )


def _attempt(prefix: Path, variant: Variant, end: JobEnd, log: Path, ranks: int) -> Attempt:
    notes = read_notes(prefix)
    stacks = tuple(sorted(prefix.parent.glob(f"{prefix.name}.rank*.stacks")))
    trouble, detail = _trouble(notes, variant, end, stacks, ranks)
    return Attempt(notes=notes, trouble=trouble, detail=detail, evidence=(*note_files(prefix), *stacks, log))


def _trouble(
    notes: Mapping[int, Note], variant: Variant, end: JobEnd, stacks: tuple[Path, ...], ranks: int
) -> tuple[CheckpointOutcome | None, str]:
    """Before anything is said of the checkpoint's files: REFUSED stands for any error that was raised."""
    errors = [note.error for note in notes.values() if note.error is not None]
    if errors:
        return CheckpointOutcome.REFUSED, errors[0].sentence
    if variant.is_script:
        return _trouble_of_script(notes, end)
    if len(notes) == ranks and all(note.outcome == "done" for note in notes.values()):
        return None, "" if end.is_in_time else "the job did not end afterwards, and was ended"
    hanging = next((where for path in stacks if (where := _last_place(path))), "")
    if hanging or not end.is_in_time:
        return CheckpointOutcome.HUNG, f"not over in time, and ended{'; a rank was in ' + hanging if hanging else ''}"
    if end.rank_signal is not None:
        return CheckpointOutcome.CRASHED, f"{DIED_BY} {end.rank_signal}"
    return CheckpointOutcome.UNKNOWN, f"the ranks did not begin: {end.last_line or f'exit code {end.exit_code}'}"


def _trouble_of_script(notes: Mapping[int, Note], end: JobEnd) -> tuple[CheckpointOutcome | None, str]:
    if not end.is_in_time:
        return CheckpointOutcome.HUNG, "not over in time, and ended"
    number = end.rank_signal or (-end.exit_code if end.exit_code is not None and end.exit_code < 0 else None)
    if number is not None:
        return CheckpointOutcome.CRASHED, f"{DIED_BY} {number}"
    if end.exit_code != 0:
        return CheckpointOutcome.REFUSED, f"exit code {end.exit_code}: {end.last_line}"
    if not notes:
        return (
            CheckpointOutcome.UNKNOWN,
            "the script ended well, but called no record(state), so nothing can be compared",
        )
    return None, ""


def _last_place(stacks: Path) -> str:
    """File, line and function that the main thread was in: faulthandler writes it last, the innermost frame first."""
    try:
        text = stacks.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    frames = text.rpartition("most recent call first):")[2].splitlines()
    return next((line.strip() for line in frames if line.strip().startswith("File ")), "")
