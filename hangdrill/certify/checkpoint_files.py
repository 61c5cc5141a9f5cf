"""The files of a checkpoint: what was written, whether it is still that, and a copy that is proven to be equal."""

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from hangdrill.model.errors import MachineError, UsageError

__all__ = ["FileSum", "Manifest", "changes_since", "duplicate", "list_files", "sum_files"]

CHUNK_BYTES = 1 << 20


class FileSum(msgspec.Struct, frozen=True, kw_only=True):
    """One file. path is relative to the checkpoint."""

    path: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All files of a checkpoint at one moment, sorted by path."""

    files: tuple[FileSum, ...]


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """How the files differ from a manifest, a sentence each. lost: missing or cut; altered: other bytes."""

    lost: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()


def list_files(directory: Path) -> tuple[Path, ...]:
    """Every regular file below, relative, sorted. Raises MachineError when it cannot be listed."""
    try:
        return tuple(sorted(path.relative_to(directory) for path in _walk(directory) if path.is_file()))
    except OSError as error:
        raise _cannot("list", error, directory) from error


def sum_files(directory: Path) -> Manifest:
    """Read every file. Raises MachineError."""
    return Manifest(files=tuple(_sum_of(directory, path) for path in list_files(directory)))


def changes_since(directory: Path, manifest: Manifest) -> Changes:
    """What became of the manifest's files; other files beside them are nobody's business. Raises MachineError."""
    lost: list[str] = []
    altered: list[str] = []
    for known in manifest.files:
        path = directory / known.path
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            lost.append(f"{known.path} is missing")
        elif size < known.bytes:
            lost.append(f"{known.path} is cut: {size} of {known.bytes} bytes")
        elif size > known.bytes or _sum_of(directory, Path(known.path)).sha256 != known.sha256:
            altered.append(f"{known.path} is not what was saved: its sha256 differs")
    return Changes(lost=tuple(lost), altered=tuple(altered))


def duplicate(source: Path, to: Path, *, prove: Callable[[Path], None] = lambda copy: None) -> Manifest:
    """Copy a checkpoint, read the copy back, and compare each sha256; `to` appears whole or not at all.

    prove: looks at the whole copy before it gets its name, and raises when it is no good (the source may have been
    written meanwhile). Raises UsageError when `to` exists or lies within `source`, or `source` has no file;
    MachineError when the copy failed or differs.
    """
    if os.path.lexists(to) or to.name in ("", ".."):
        raise UsageError("a copy never overwrites anything", where=str(to), next_step="name a new directory")
    if source.resolve() in to.resolve().parents:
        hint = "name a directory outside of it"
        raise UsageError("a copy within the checkpoint is deleted with it", where=str(to), next_step=hint)
    files = list_files(source)
    if not files:
        raise UsageError("there is no file to copy", where=str(source), next_step="name the checkpoint's directory")
    temporary = to.with_name(f".{to.name}.{secrets.token_hex(4)}.tmp")
    absent = [parent for parent in to.parents if not os.path.lexists(parent)]
    try:
        temporary.mkdir(parents=True)
        read = Manifest(files=tuple(_copy(source, temporary, path) for path in files))
        differing = changes_since(temporary, read)
        if differing.lost or differing.altered:
            raise MachineError(
                f"the copy is not equal: {(*differing.lost, *differing.altered)[0]}",
                where=str(to),
                next_step="check the disk, and copy again",
            )
        prove(temporary)
        temporary.rename(to)
        _sync_directory(to.parent)
    except OSError as error:
        raise _cannot("copy", error, to) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):  # one that is no longer empty stays, and so do those above it
            for parent in absent:
                parent.rmdir()
    return read


def _copy(source: Path, to: Path, path: Path) -> FileSum:
    """The sum is that of what was read, so that a copy is compared with its source."""
    (to / path).parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with (source / path).open("rb") as read, (to / path).open("xb") as written:
        while chunk := read.read(CHUNK_BYTES):
            digest.update(chunk)
            written.write(chunk)
            size += len(chunk)
        written.flush()
        os.fsync(written.fileno())
    return FileSum(path=str(path), bytes=size, sha256=digest.hexdigest())


def _sum_of(directory: Path, path: Path) -> FileSum:
    digest, size = hashlib.sha256(), 0
    try:
        with (directory / path).open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise _cannot("read", error, directory / path) from error
    return FileSum(path=str(path), bytes=size, sha256=digest.hexdigest())


def _walk(directory: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Through links to directories too, since torch reads through them; a link to where we came from leads nowhere."""
    real = directory.resolve()
    if real in above:
        return
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _walk(entry, above | {real})
        else:
            yield entry


def _sync_directory(directory: Path) -> None:
    """So that the copy's name outlives a power cut. Not every file system takes it."""
    descriptor = os.open(directory, os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


def _cannot(what: str, error: OSError, path: Path) -> MachineError:
    return MachineError(
        f"cannot {what}: {error.strerror or error}",
        where=str(path),
        next_step="check that it exists, its owner and disk",
    )
