"""The directory of a certification (OUT): where things are in it, its lock, and what an interrupted one has left.

OUT/
  plan.toml                the plan as given
  stacks.json              the stacks with their fingerprints, as of the last command
  cells/<id>.json          CellResult of every cell that has ended, written whole
  cells/<id>/              what the cell left: run directories, samples, logs
  cells/<id>.unfinished    while a cell that can go on has not ended: what it was begun with
  receipt.json             hangdrill.receipt/1
  receipt.dsse.json        the signed envelope, with --sign
  checklist.md, checklist.html
"""

import contextlib
import fcntl
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hangdrill.certify.cells import CellResult, evidence_file
from hangdrill.drill.layout import make_directory, write_json
from hangdrill.model.errors import MachineError, UsageError
from hangdrill.model.receipt import EvidenceFile

__all__ = ["LOCK", "Out", "locked", "open_out"]

LOCK = ".lock"


class Out(msgspec.Struct, frozen=True):
    """The paths below one OUT."""

    root: Path

    @property
    def plan(self) -> Path:
        return self.root / "plan.toml"

    @property
    def stacks(self) -> Path:
        return self.root / "stacks.json"

    @property
    def cells(self) -> Path:
        return self.root / "cells"

    @property
    def receipt(self) -> Path:
        return self.root / "receipt.json"

    @property
    def envelope(self) -> Path:
        return self.root / "receipt.dsse.json"

    @property
    def checklist(self) -> Path:
        return self.root / "checklist.md"

    @property
    def page(self) -> Path:
        return self.root / "checklist.html"

    def result_of(self, cell_id: str) -> Path:
        """The file of a cell's result."""
        return self.cells / f"{cell_id}.json"

    def new_dir_of(self, cell_id: str) -> Path:
        """The cell's own directory, made anew and empty; an older result of the cell goes too."""
        self.result_of(cell_id).unlink(missing_ok=True)
        directory = self.cells / cell_id
        try:
            if directory.exists():
                shutil.rmtree(directory)
        except OSError as error:
            hint = "remove it by hand, or name another --out"
            raise MachineError(f"cannot empty: {error.strerror}", where=str(directory), next_step=hint) from error
        make_directory(directory)
        return directory

    def begin(self, cell_id: str, key: str, *, goes_on: bool, now: str, since: str = "") -> tuple[Path, str]:
        """The cell's own directory, and when the cell began: now and empty or, for a cell that goes on, as one that was
        begun here with the same key, at `since` or later, and has not ended left it."""
        if not goes_on:
            return self.new_dir_of(cell_id), now
        mark, directory = self._unfinished(cell_id), self.cells / cell_id
        begun_with = f"{key} on {platform.node()}"
        earlier, _, began = _text_of(mark).partition("\n")
        if directory.is_dir() and earlier == begun_with and since <= began.strip() <= now:
            return directory, began.strip()
        self.new_dir_of(cell_id)
        mark.write_text(f"{begun_with}\n{now}\n", encoding="utf-8")
        return directory, now

    def end(self, cell_id: str) -> None:
        """The cell has run to its end: when it is run again, it begins anew."""
        self._unfinished(cell_id).unlink(missing_ok=True)

    def _unfinished(self, cell_id: str) -> Path:
        return self.cells / f"{cell_id}.unfinished"

    def require(self) -> None:
        """MachineError when it was deleted or moved away since: with it went the lock, and evidence."""
        if not self.stacks.is_file():
            hint = "name another --out, and let nothing clean it up while it is written"
            raise MachineError("the directory was deleted while it was written", where=str(self.root), next_step=hint)

    def write_result(self, result: CellResult) -> None:
        """Whole, or not at all."""
        make_directory(self.result_of(result.id).parent)
        write_json(self.result_of(result.id), result.sealed())

    def finished(self, cell_id: str, key: str, *, since: str = "") -> CellResult | None:
        """The result of a cell that has run to its end with the same plan and stacks, begun at `since` or later; else
        None. Nor is one taken that was edited, that is of another cell, or whose evidence is no longer what it was."""
        try:
            found = msgspec.json.decode(self.result_of(cell_id).read_bytes(), type=CellResult)
        except (OSError, msgspec.DecodeError):
            return None
        is_own = found.id == cell_id and found == found.sealed() and found.ran and found.key == key
        return (
            found
            if is_own and since <= found.began_at and all(self._is_there(file) for file in found.artifacts)
            else None
        )

    def is_measured(self, cell_id: str) -> bool:
        """Whether there is the result of a cell that has run to its end, with whatever plan and stacks."""
        try:
            return msgspec.json.decode(self.result_of(cell_id).read_bytes(), type=CellResult).ran
        except (OSError, msgspec.DecodeError):
            return False

    def _is_there(self, file: EvidenceFile) -> bool:
        try:
            return evidence_file(self.root / file.path, self.root) == file
        except (OSError, ValueError):
            return False


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


@contextlib.contextmanager
def open_out(root: Path, *, resume: bool) -> Iterator[Out]:
    """OUT, locked for this process. UsageError when it is in use, or is not empty and this is no --resume."""
    out = Out(root.absolute())
    if out.root.exists() and not resume and (not out.root.is_dir() or _is_used(out)):
        hint = "add --resume to go on with it, or name another directory with --out"
        raise UsageError("the directory is not empty", where=str(root), next_step=hint)
    if resume and not out.plan.is_file():
        hint = "name the --out of the command that was interrupted, or leave --resume away"
        raise UsageError("there is no certification to resume", where=str(root), next_step=hint)
    make_directory(out.root)
    make_directory(out.cells)
    with locked(out.root):
        yield out


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Nobody else's while this process writes to it. UsageError when it is in use."""
    from filelock import FileLock, Timeout

    lock = FileLock(directory / LOCK)
    with contextlib.ExitStack() as stack:
        try:
            lock.acquire(timeout=0)
            stack.callback(lock.release)
        except PermissionError as refused:
            stack.enter_context(_locked_as_reader(directory, refused))
        except Timeout as error:
            raise _in_use(directory) from error
        yield


@contextlib.contextmanager
def _locked_as_reader(directory: Path, refused: PermissionError) -> Iterator[None]:
    """The same lock, where its file is that of another user who may write to the directory, too. Raises `refused` where
    there is none that can be read, or whose file system locks for writers only."""
    try:
        file = (directory / LOCK).open("rb")
    except OSError:
        raise refused from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _in_use(directory) from error
        except OSError:
            raise refused from None
        yield


def _in_use(directory: Path) -> UsageError:
    return UsageError(
        "another hangdrill works in this directory", where=str(directory), next_step="wait for it, or end it"
    )


def _is_used(out: Out) -> bool:
    """Whether anything lies there but what a command leaves that was killed before it had begun."""
    begun = {LOCK, *([out.cells.name] if out.cells.is_dir() and not any(out.cells.iterdir()) else ())}
    return any(path.name not in begun for path in out.root.iterdir())
