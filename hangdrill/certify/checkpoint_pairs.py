"""The checkpoint drill: save on every stack, restore on every stack, and one row for each ordered pair.

1. Each stack saves. A checkpoint that is not whole right after its save goes no further.
2. The sha256 of every file is written down; of `duplicated` a copy is made, read back and compared.
3. Each stack restores each checkpoint, in processes that saved nothing. The stack that saved a duplicated checkpoint
   restores the copy. Before and after each restore the files are compared with what was saved: so damage is not
   mistaken for version trouble, and a restore that changes a checkpoint is noticed.
4. `restored_last` comes last, with its own checkpoints at the very end, when the candidate has had them too.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from hangdrill.certify.checkpoint_attempts import (
    Attempt,
    DrillOptions,
    DrillStack,
    Keeper,
    NoopKeeper,
    Task,
    Variant,
    try_all,
)
from hangdrill.certify.checkpoint_files import Manifest, duplicate, sum_files
from hangdrill.certify.checkpoint_jobs import Action
from hangdrill.certify.checkpoint_judge import judged
from hangdrill.certify.checkpoint_kept import (
    SAVE_KEY,
    KeptAttempts,
    is_unchanged,
    key_of_files,
    key_of_manifest,
    manifest_file,
    remove_checkpoint,
    saved_as_listed,
)
from hangdrill.certify.checkpoint_look import CheckpointState, Look, look
from hangdrill.certify.checkpoint_notes import Note, differences, is_empty, size_text
from hangdrill.drill.waiting import Interrupt
from hangdrill.launchers.agent_path import prepare_agent_path
from hangdrill.model.receipt import CheckpointOutcome, CheckpointPair

__all__ = ["PairDrill", "PairTable", "SavedCheckpoint", "drill_pairs"]

NEW_FORM, TOO_MANY = "2.15", "too many values to unpack"
OF_STATE = {
    CheckpointState.PARTIAL: CheckpointOutcome.PARTIAL,
    CheckpointState.DAMAGED: CheckpointOutcome.DAMAGED,
    CheckpointState.ELSE: CheckpointOutcome.PARTIAL,
    CheckpointState.UNKNOWN: CheckpointOutcome.UNKNOWN,
}


class SavedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of the drill. trouble: why it cannot be restored anywhere. copy: its duplicate, proven equal."""

    stack: str
    variant: Variant
    directory: Path
    notes: dict[int, Note] = msgspec.field(default_factory=dict)
    manifest: Manifest | None = None
    copy: Path | None = None
    trouble: CheckpointOutcome | None = None
    detail: str = ""
    evidence: tuple[Path, ...] = ()


class PairTable(msgspec.Struct, frozen=True, kw_only=True):
    """The rows, by who saved, who restored and how; and what was saved."""

    pairs: tuple[CheckpointPair, ...]
    saved: tuple[SavedCheckpoint, ...]


class PairDrill:
    """Single steps of the drill. Everything is written below `work_dir`; evidence is named relative to `out_dir`."""

    def __init__(
        self,
        options: DrillOptions,
        *,
        work_dir: Path,
        out_dir: Path,
        interrupt: Interrupt,
        tell: Callable[[str], None] = lambda text: None,
        goes_on: bool = False,
    ) -> None:
        """goes_on: keep what has ended in `work_dir`, and use again what an interrupted drill has left there."""
        self.options = options
        self._work_dir, self._out_dir = work_dir, out_dir
        self._interrupt, self._tell, self._goes_on = interrupt, tell, goes_on
        self._agent_path = prepare_agent_path(work_dir / "agent-path")

    def save(self, stack: DrillStack) -> tuple[SavedCheckpoint, ...]:
        """Save every variant on one stack."""
        home = self._work_dir / "saved" / stack.name
        tasks = [Task(name=each.name, variant=each, place=home / each.name) for each in self.options.variants]
        if stack.missing:
            return tuple(_unsaved(stack, task) for task in tasks)
        self._tell(f"{stack.name} saves")
        keeper = self._keeper(home / "notes", dict.fromkeys((task.name for task in tasks), SAVE_KEY))
        for task in tasks if self._goes_on else ():
            if keeper.find(task) is None or not saved_as_listed(task.place):
                keeper.forget(task)
                remove_checkpoint(task.place)
        tried = self._try("save", stack, tasks, home / "notes", keeper)
        return tuple(self._saved(stack, task, tried[task.name]) for task in tasks)

    def duplicate(self, saved: SavedCheckpoint) -> SavedCheckpoint:
        """Copy it beside itself, with equal hashes. Raises MachineError."""
        if saved.trouble is not None:
            return saved
        copy = saved.directory.with_name(f"{saved.directory.name}.copy")
        if self._goes_on and copy.exists():
            if is_unchanged(copy, saved.manifest):
                return msgspec.structs.replace(saved, copy=copy)
            remove_checkpoint(copy)
        duplicate(saved.directory, copy)
        return msgspec.structs.replace(saved, copy=copy)

    def restore(self, saved: Sequence[SavedCheckpoint], stack: DrillStack) -> tuple[CheckpointPair, ...]:
        """Restore checkpoints of any stacks on one stack, in their order."""
        early = [self._not_to_restore(each, stack) for each in saved]
        tasks = [_task(each, stack) for each, row in zip(saved, early, strict=True) if row is None]
        tried: dict[str, Attempt] = {}
        if tasks:
            self._tell(f"{stack.name} restores {', '.join(dict.fromkeys(each.stack for each in saved))}")
            home = self._work_dir / "restored-by" / stack.name
            keys = {_task(each, stack).name: key_of_manifest(each.manifest) for each in saved}
            tried = self._try("restore", stack, tasks, home, self._keeper(home, keys))
        return tuple(
            row or self._restored(each, stack, tried[_task(each, stack).name])
            for each, row in zip(saved, early, strict=True)
        )

    def read(self, directory: Path, stack: DrillStack) -> Attempt:
        """Read a checkpoint of the user's own on one stack, without its model."""
        self._tell(f"{stack.name} reads {directory}")
        task = Task(name="known-good", variant=Variant(layout="plain"), place=directory)
        home = self._work_dir / "read-by" / stack.name
        keeper = self._keeper(home, {task.name: key_of_files(directory)})
        return self._try("read", stack, [task], home, keeper)[task.name]

    def evidence(self, paths: Iterable[Path]) -> tuple[str, ...]:
        """The paths as the receipt names them."""
        return tuple(str(path.relative_to(self._out_dir)) for path in paths)

    def _keeper(self, at: Path, keys: dict[str, str]) -> Keeper:
        return KeptAttempts(at, keys) if self._goes_on else NoopKeeper()

    def _try(
        self, action: Action, stack: DrillStack, tasks: Sequence[Task], at: Path, keeper: Keeper
    ) -> dict[str, Attempt]:
        return try_all(
            action,
            stack,
            tasks,
            self.options,
            work_dir=at,
            agent_path=self._agent_path,
            interrupt=self._interrupt,
            keeper=keeper,
        )

    def _saved(self, stack: DrillStack, task: Task, tried: Attempt) -> SavedCheckpoint:
        at, variant = task.place, task.variant
        about = SavedCheckpoint(
            stack=stack.name, variant=variant, directory=at, notes=tried.notes, evidence=tried.evidence
        )
        if tried.trouble is not None and not (variant.is_script and tried.trouble is CheckpointOutcome.UNKNOWN):
            trouble = CheckpointOutcome.FAILED if tried.trouble is CheckpointOutcome.REFUSED else tried.trouble
            return msgspec.structs.replace(about, trouble=trouble, detail=f"not saved: {tried.detail}")
        state = _look_at(at, None, is_script=variant.is_script)
        if not state.is_whole:
            text = f"the save ended well, but {state.problems[0]}"
            return msgspec.structs.replace(about, trouble=OF_STATE[state.state], detail=text)
        manifest = sum_files(at)
        listed = manifest_file(at)
        listed.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2))
        return msgspec.structs.replace(about, manifest=manifest, evidence=(*about.evidence, listed))

    def _not_to_restore(self, saved: SavedCheckpoint, stack: DrillStack) -> CheckpointPair | None:
        if saved.trouble is not None:
            return _row(saved, stack, saved.trouble, saved.detail, self.evidence(saved.evidence))
        if stack.missing:
            return _row(saved, stack, CheckpointOutcome.UNKNOWN, stack.missing, ())
        return self._if_not_whole(saved, stack, "before the restore")

    def _if_not_whole(self, saved: SavedCheckpoint, stack: DrillStack, when: str) -> CheckpointPair | None:
        found = _look_at(_place(saved, stack), saved.manifest, is_script=saved.variant.is_script)
        if found.is_whole:
            return None
        return _row(saved, stack, OF_STATE[found.state], f"{when}: {'; '.join(found.problems[:3])}", ())

    def _form_text(self, saved: SavedCheckpoint, tried: Attempt) -> str:
        """The known cause in words: what an older torch says of it names nothing that a reader could act on."""
        is_new = look(saved.directory, saved.manifest).form == NEW_FORM
        if tried.trouble is CheckpointOutcome.REFUSED and is_new and TOO_MANY in tried.detail:
            return f"its .metadata is in the form of torch {NEW_FORM}, which this older torch does not know: "
        return ""

    def _restored(self, saved: SavedCheckpoint, stack: DrillStack, tried: Attempt) -> CheckpointPair:
        evidence = self.evidence(tried.evidence)
        broken = self._if_not_whole(saved, stack, "after the restore")
        if broken is not None:
            return msgspec.structs.replace(broken, evidence=evidence)
        if tried.trouble is not None:
            return _row(saved, stack, tried.trouble, f"{self._form_text(saved, tried)}{tried.detail}", evidence)
        if is_empty(saved.notes):
            return _row(saved, stack, CheckpointOutcome.UNKNOWN, "nothing was noted when it was saved", evidence)
        wrong = differences(saved.notes, tried.notes)
        if wrong:
            return _row(saved, stack, CheckpointOutcome.UNEQUAL, "; ".join(wrong), evidence)
        which = "its copy: " if _place(saved, stack) == saved.copy else ""
        text = "; ".join(part for part in (f"{which}{size_text(saved.notes)} are bit-equal", tried.detail) if part)
        return _row(saved, stack, CheckpointOutcome.EQUAL, text, evidence)


def drill_pairs(
    drill: PairDrill, stacks: Sequence[DrillStack], *, duplicated: str = "", restored_last: str = ""
) -> PairTable:
    """The whole drill. Raises MachineError when a job cannot start or a file cannot be read or copied, Interrupted."""
    saved = {stack.name: drill.save(stack) for stack in stacks}
    if duplicated in saved:
        saved[duplicated] = tuple(drill.duplicate(each) for each in saved[duplicated])
    runnable = [_seen_running(stack, saved[stack.name]) for stack in stacks]
    rows: dict[tuple[str, str], list[CheckpointPair]] = {}
    for stack in sorted(runnable, key=lambda stack: stack.name == restored_last):
        others = [each for by, group in saved.items() if by != stack.name for each in group]
        for row in drill.restore([*others, *saved[stack.name]], stack):
            rows.setdefault((row.saved_by, row.restored_by), []).append(row)
    pairs = [row for by in saved for to in saved for row in rows[by, to]]
    return PairTable(pairs=judged(pairs), saved=tuple(each for group in saved.values() for each in group))


def _seen_running(stack: DrillStack, saved: Sequence[SavedCheckpoint]) -> DrillStack:
    """A stack on which no rank has begun while saving is not asked to restore: nothing would be said of checkpoints."""
    if stack.missing or not all(each.trouble is CheckpointOutcome.UNKNOWN for each in saved):
        return stack
    return msgspec.structs.replace(stack, missing=saved[0].detail if saved else "")


def _unsaved(stack: DrillStack, task: Task) -> SavedCheckpoint:
    return SavedCheckpoint(
        stack=stack.name,
        variant=task.variant,
        directory=task.place,
        trouble=CheckpointOutcome.UNKNOWN,
        detail=f"not saved: {stack.missing}",
    )


def _task(saved: SavedCheckpoint, stack: DrillStack) -> Task:
    name = f"{saved.variant.name}@{saved.stack}"
    return Task(name=name, variant=saved.variant, place=_place(saved, stack))


def _place(saved: SavedCheckpoint, stack: DrillStack) -> Path:
    return saved.copy if saved.copy is not None and saved.stack == stack.name else saved.directory


def _look_at(directory: Path, manifest: Manifest | None, *, is_script: bool) -> Look:
    """What a script writes need not be DCP's, and may be too large to be read here: then only the manifest says whether
    it is whole, and the restore."""
    found = look(directory, manifest)
    if is_script and found.state in (CheckpointState.ELSE, CheckpointState.UNKNOWN) and directory.exists():
        return Look(state=CheckpointState.WHOLE)
    return found


def _row(
    saved: SavedCheckpoint, stack: DrillStack, outcome: CheckpointOutcome, detail: str, evidence: tuple[str, ...]
) -> CheckpointPair:
    return CheckpointPair(
        saved_by=saved.stack,
        restored_by=stack.name,
        mode=saved.variant.mode,
        layout=saved.variant.layout,
        outcome=outcome,
        detail=detail,
        evidence=evidence,
    )
