"""Which files of a directory are whose dumps.

In hangdrill's own evidence directory the manifest says it. Elsewhere the names do; two files that claim one rank are
both kept and the rank is listed as a duplicate. Files that are passed over are listed, each with the reason.
"""

import os
from pathlib import Path

import msgspec

from hangdrill.model.run import ArtifactKind, Manifest
from hangdrill.recorder.errors import DumpError
from hangdrill.recorder.names import is_known_name, rank_in_name, why_ignored

__all__ = ["DumpFiles", "IgnoredFile", "find_dumps", "read_manifest"]

MANIFEST = "manifest.json"
MAX_DEPTH = 3
"""Directories below the one that was named (a directory a host, a directory an attempt)."""
MAX_FILES = 1_000_000


class IgnoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was passed over, and why."""

    path: Path
    reason: str


class DumpFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The dumps of a directory. `files` is keyed by global rank and sorted; more than one file of a rank may be right
    (two roads out of one rank) or a mistake (`duplicates`: two files claim a rank, and no manifest says why)."""

    files: dict[int, tuple[Path, ...]]
    ignored: tuple[IgnoredFile, ...] = ()
    duplicates: tuple[int, ...] = ()
    manifest: Manifest | None = None


def find_dumps(path: Path, *, prefix: str | None = None) -> DumpFiles:
    """The dumps at `path`, a directory or one file. prefix: only names that begin with it. Raises DumpError."""
    if path.is_file():
        rank = rank_in_name(path.name, prefix)
        if rank is None:
            raise DumpError(
                "the name does not say which rank's dump this is", where=str(path), next_step="name it fr_<rank>"
            )
        return DumpFiles(files={rank: (path,)})
    if not path.is_dir():
        raise DumpError("there is no such file or directory", where=str(path), next_step="check the path")
    manifest = read_manifest(path)
    return _by_manifest(path, manifest) if manifest is not None and prefix is None else _by_name(path, prefix)


def read_manifest(directory: Path) -> Manifest | None:
    """The collector's manifest of an evidence directory; None when there is none of hangdrill's."""
    file = directory / MANIFEST
    try:
        return msgspec.json.decode(file.read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _by_manifest(directory: Path, manifest: Manifest) -> DumpFiles:
    """Dumps and traces of the last attempt, as the manifest lists them."""
    evidence = [a for a in manifest.artifacts if a.kind in {ArtifactKind.DUMP, ArtifactKind.TRACE}]
    last = max((artifact.attempt for artifact in evidence), default=0)
    files: dict[int, list[Path]] = {}
    ignored = []
    root = directory.resolve()
    for artifact in evidence:
        path = directory / artifact.path
        if not path.resolve().is_relative_to(root):
            ignored.append(IgnoredFile(path=path, reason="the manifest names a file outside its directory"))
        elif artifact.attempt != last:
            reason = f"of attempt {artifact.attempt}, before the restart; the last is {last}"
            ignored.append(IgnoredFile(path=path, reason=reason))
        else:
            files.setdefault(artifact.rank, []).append(path)
    return DumpFiles(
        files={rank: tuple(sorted(set(files[rank]))) for rank in sorted(files)},
        ignored=tuple(sorted(ignored, key=lambda file: file.path)),
        manifest=manifest,
    )


def _by_name(directory: Path, prefix: str | None) -> DumpFiles:
    files: dict[int, list[Path]] = {}
    ignored = []
    for path in _walk(directory):
        rank, reason = _judge(path, prefix)
        if rank is None:
            ignored.append(IgnoredFile(path=path, reason=reason))
        else:
            files.setdefault(rank, []).append(path)
    return DumpFiles(
        files={rank: tuple(files[rank]) for rank in sorted(files)},
        ignored=tuple(ignored),
        duplicates=tuple(rank for rank in sorted(files) if len(files[rank]) > 1),
    )


def _judge(path: Path, prefix: str | None) -> tuple[int | None, str]:
    """The rank a file claims, or why it is passed over."""
    name = path.name
    if reason := why_ignored(name):
        return None, reason
    rank = rank_in_name(name, prefix)
    if rank is None:
        return None, "its name says no rank"
    if prefix is None and not is_known_name(name) and not _begins_like_a_dump(path):
        return None, "neither its name nor its first byte is a dump's"
    return rank, ""


def _begins_like_a_dump(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(1) in {b"\x80", b"{"}
    except OSError:
        return False


def _walk(directory: Path) -> list[Path]:
    """All files below, sorted; no links to directories, no more than MAX_DEPTH levels and MAX_FILES files."""
    found: list[Path] = []
    levels = [(directory, 0)]
    while levels:
        place, depth = levels.pop()
        for entry in _entries(place):
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH and not entry.name.startswith("."):
                    levels.append((Path(entry.path), depth + 1))
            elif entry.is_file():
                found.append(Path(entry.path))
            if len(found) > MAX_FILES:
                raise DumpError(
                    f"more than {MAX_FILES} files", where=str(directory), next_step="name the directory of the dumps"
                )
    return sorted(found)


def _entries(place: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as entries:
            return list(entries)
    except OSError as problem:
        raise DumpError(
            f"the directory cannot be read: {problem.strerror}", where=str(place), next_step="check its permissions"
        ) from problem
