"""Saves and restores that have ended, kept beside their notes, so that an interrupted drill goes on after them."""

import contextlib
import hashlib
import shutil
from pathlib import Path

import msgspec

from hangdrill.certify.checkpoint_attempts import Attempt, Task
from hangdrill.certify.checkpoint_files import Manifest, changes_since, list_files
from hangdrill.certify.checkpoint_notes import Note
from hangdrill.certify.kept import keep, read_kept
from hangdrill.model.errors import MachineError
from hangdrill.model.receipt import CheckpointOutcome

__all__ = [
    "SAVE_KEY",
    "KeptAttempts",
    "is_unchanged",
    "key_of_files",
    "key_of_manifest",
    "manifest_file",
    "remove_checkpoint",
    "saved_as_listed",
]

SAVE_KEY = "save"
"""Of a save: what it wrote is looked at itself, against the list of its files (`saved_as_listed`)."""


class _KeptAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An Attempt as its file holds it. evidence: relative to the file's directory."""

    notes: dict[int, Note]
    trouble: CheckpointOutcome | None
    detail: str
    evidence: tuple[str, ...]


class KeptAttempts:
    """Those of one stack and one action, in the directory of their notes. keys: by the task's name; a task without one
    is tried anew and not kept."""

    def __init__(self, work_dir: Path, keys: dict[str, str]) -> None:
        self._work_dir, self._keys = work_dir, keys

    def find(self, task: Task) -> Attempt | None:
        """The attempt, if it has ended, nothing that it depends on has changed, and its evidence is there."""
        key = self._keys.get(task.name)
        kept = read_kept(self._file(task), key, _KeptAttempt) if key else None
        if kept is None:
            return None
        evidence = tuple(self._work_dir / name for name in kept.evidence)
        if not all(path.is_file() for path in evidence):
            return None
        return Attempt(notes=kept.notes, trouble=kept.trouble, detail=kept.detail, evidence=evidence)

    def keep(self, task: Task, attempt: Attempt) -> None:
        """One of which nothing is known is tried again, and so not kept. Raises MachineError."""
        key = self._keys.get(task.name)
        if not key or attempt.trouble is CheckpointOutcome.UNKNOWN:
            return
        evidence = tuple(str(path.relative_to(self._work_dir)) for path in attempt.evidence)
        value = _KeptAttempt(notes=attempt.notes, trouble=attempt.trouble, detail=attempt.detail, evidence=evidence)
        keep(self._file(task), key, value)

    def forget(self, task: Task) -> None:
        """What an attempt that did not end has noted must not be taken for the next one's."""
        with contextlib.suppress(OSError):
            for path in (self._file(task), *self._work_dir.glob(f"{task.name}.rank*")):
                path.unlink(missing_ok=True)

    def _file(self, task: Task) -> Path:
        return self._work_dir / f"{task.name}.attempt.json"


def manifest_file(checkpoint: Path) -> Path:
    """Where the list of a saved checkpoint's files is."""
    return checkpoint.with_name(f"{checkpoint.name}.manifest.json")


def saved_as_listed(checkpoint: Path) -> bool:
    """Whether it is there as it was saved. Raises MachineError when it cannot be read."""
    try:
        manifest = msgspec.json.decode(manifest_file(checkpoint).read_bytes(), type=Manifest)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError):
        return False
    return bool(manifest.files) and is_unchanged(checkpoint, manifest)


def is_unchanged(directory: Path, manifest: Manifest | None) -> bool:
    """Whether every file of the manifest is what it was; False without a manifest. Raises MachineError."""
    if manifest is None:
        return False
    found = changes_since(directory, manifest)
    return not found.lost and not found.altered


def remove_checkpoint(checkpoint: Path) -> None:
    """With the list of its files. Raises MachineError."""
    try:
        manifest_file(checkpoint).unlink(missing_ok=True)
        if checkpoint.exists():
            shutil.rmtree(checkpoint)
    except OSError as error:
        hint = "remove it by hand, or name another --out"
        raise MachineError(f"cannot remove: {error.strerror}", where=str(checkpoint), next_step=hint) from error


def key_of_manifest(manifest: Manifest | None) -> str:
    """Of a checkpoint's own bytes; empty when they are not known."""
    return hashlib.sha256(msgspec.json.encode(manifest)).hexdigest() if manifest is not None else ""


def key_of_files(directory: Path) -> str:
    """Of a checkpoint that may be too large to hash: names, sizes and times of its files; empty when it has none."""
    try:
        found = [(str(path), (directory / path).stat()) for path in list_files(directory)]
    except (MachineError, OSError):
        return ""
    text = "\n".join(f"{path} {about.st_size} {about.st_mtime_ns}" for path, about in found)
    return hashlib.sha256(f"{directory}\n{text}".encode()).hexdigest() if found else ""
