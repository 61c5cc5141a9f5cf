"""Look at a checkpoint's files: whole, partial or damaged, without torch and without the stack that saved it.

With the manifest of when it was saved the answer is certain. Without one: `.metadata` is written last, so without it
the save never ended; it says which bytes of which file hold what, so a missing or cut file shows; and torch.save keeps
a checksum of each tensor's bytes, which torch itself does not look at when it reads. Of `.metadata` and of the padding
between tensors nobody keeps a checksum. What cannot be read, or is too large to be read here, is not called damaged:
nothing is known of it.
"""

import io
import zipfile
import zlib
from collections.abc import Iterator
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import IO

import msgspec

from hangdrill.certify.checkpoint_files import Manifest, changes_since
from hangdrill.certify.checkpoint_metadata import MetadataError, Part, StoredMetadata, read_metadata

__all__ = ["METADATA", "CheckpointState", "Look", "look"]

METADATA = ".metadata"
PROVE_IT = "restore it with the stack that saved it, or compare its files with their sha256 of when it was saved"
READ_IT = "look as a user who may read it; check the disk"


class CheckpointState(Enum):
    """What the files are."""

    WHOLE = "whole"
    PARTIAL = "partial"
    """Something is missing or cut, or the save never ended."""
    DAMAGED = "damaged"
    """Other bytes than were written."""
    UNKNOWN = "unknown"
    """Nobody could look, or it would take too much memory."""
    ELSE = "no checkpoint"
    """Nothing that torch.distributed.checkpoint writes."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """problems: a sentence each. next_step: how to find out what is unknown. form: as in StoredMetadata; empty when it
    was not read. parts: tensors and values."""

    state: CheckpointState
    problems: tuple[str, ...] = ()
    next_step: str = ""
    form: str = ""
    parts: int = 0
    unproven: int = 0
    """Parts without a checksum of their own (transformed, or another format), of which only the size is known."""

    @property
    def is_whole(self) -> bool:
        """Whether a restore that fails is not the files' fault."""
        return self.state is CheckpointState.WHOLE


def look(directory: Path, manifest: Manifest | None = None) -> Look:
    """Read every file. Raises MachineError when the directory cannot be read."""
    if manifest is not None:
        changes = changes_since(directory, manifest)
        if changes.lost:
            return Look(state=CheckpointState.PARTIAL, problems=(*changes.lost, *changes.altered))
        if changes.altered:
            return Look(state=CheckpointState.DAMAGED, problems=changes.altered)
    found = _own_look(directory)
    if manifest is not None and found.state is not CheckpointState.PARTIAL:
        return msgspec.structs.replace(found, state=CheckpointState.WHOLE, problems=(), next_step="", unproven=0)
    return found


def _own_look(directory: Path) -> Look:
    """By what the checkpoint says of itself."""
    path = directory / METADATA
    try:
        if not path.is_file():
            return _without_metadata(directory)
        stored = read_metadata(path)
        lost = tuple(_lost(directory, stored))
        damaged, unproven = _damaged(directory, stored) if not lost else ((), 0)
    except OSError as error:
        problem = f"{Path(error.filename or path).name} cannot be read: {error.strerror}"
        return Look(state=CheckpointState.UNKNOWN, problems=(problem,), next_step=READ_IT)
    except MetadataError as error:
        problems = (f"{METADATA}: {error}",)
        if error.is_too_large:
            return Look(state=CheckpointState.UNKNOWN, problems=problems, next_step=PROVE_IT)
        return Look(state=CheckpointState.PARTIAL if error.is_cut else CheckpointState.DAMAGED, problems=problems)
    state = CheckpointState.PARTIAL if lost else CheckpointState.DAMAGED if damaged else CheckpointState.WHOLE
    return Look(state=state, problems=lost or damaged, form=stored.form, parts=len(stored.parts), unproven=unproven)


def _without_metadata(directory: Path) -> Look:
    shards = sorted(path.name for path in directory.glob("*.distcp")) if directory.is_dir() else []
    begun = directory.is_dir() and (bool(shards) or any(directory.glob("*.metadata*")))
    if not begun:
        return Look(state=CheckpointState.ELSE, problems=(f"{directory} holds no {METADATA} and no shard (*.distcp)",))
    problem = f"{METADATA} is missing: it is written last, so the save did not end, or the copy was not complete"
    return Look(state=CheckpointState.PARTIAL, problems=(problem,))


def _lost(directory: Path, stored: StoredMetadata) -> Iterator[str]:
    for file, parts in groupby(stored.parts, key=lambda part: part.file):
        needed = max(part.offset + part.length for part in parts)
        path = directory / file
        if not path.is_file():
            yield f"{file} is missing"
        elif (size := path.stat().st_size) < needed:
            yield f"{file} is cut: {size} of {needed} bytes"


def _damaged(directory: Path, stored: StoredMetadata) -> tuple[tuple[str, ...], int]:
    """The parts whose bytes do not fit their checksum, and how many have none. OSError, which names the file, when one
    cannot be read and nothing is wrong with the others."""
    problems: list[str] = []
    unproven = 0
    unread: OSError | None = None
    for file, parts in groupby(stored.parts, key=lambda part: part.file):
        try:
            with (directory / file).open("rb") as opened:
                for part in parts:
                    if not part.is_plain or not file.endswith(".distcp"):
                        unproven += 1
                    elif why := _damage_of(opened, part):
                        problems.append(f"{file}, {part.name} at byte {part.offset}: {why}")
        except OSError as error:
            unread = OSError(error.errno, error.strerror, str(directory / file))
    if unread is not None and not problems:
        raise unread
    return tuple(problems), unproven


def _damage_of(file: IO[bytes], part: Part) -> str:
    """A part is one zip archive, as torch.save writes it."""
    try:
        with zipfile.ZipFile(io.BufferedReader(_Slice(file, part))) as archive:
            wrong = archive.testzip()
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, RuntimeError, zlib.error) as error:
        return f"not the archive that was written ({error})"
    return f"wrong checksum of {wrong}" if wrong else ""


class _Slice(io.RawIOBase):
    """The bytes of one part as a file of its own, so that a large shard is never held whole."""

    def __init__(self, file: IO[bytes], part: Part) -> None:
        self._file, self._part, self._at = file, part, 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Within the part."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._part.length}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]  # narrower than the base's, on purpose
        """From where the part stands."""
        self._file.seek(self._part.offset + self._at)
        data = self._file.read(min(len(buffer), max(0, self._part.length - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
