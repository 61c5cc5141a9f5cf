"""Reading the dumps that a manifest lists, of every attempt. (`hangdrill.recorder.read_evidence` is for incidents: it
takes the last attempt, while a drill judges the one in which its fault took.)
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from hangdrill.model.diagnosis import UnreadableDump
from hangdrill.model.dump import RankDump
from hangdrill.model.run import Artifact, ArtifactKind
from hangdrill.recorder import DumpError, read_dump

__all__ = ["ReadDumps", "read_artifacts"]


class ReadDumps(msgspec.Struct, frozen=True, kw_only=True):
    """What could be read and what could not. A cut dump is in both."""

    dumps: tuple[RankDump, ...] = ()
    unreadable: tuple[UnreadableDump, ...] = ()


def read_artifacts(evidence_dir: Path, artifacts: Iterable[Artifact]) -> ReadDumps:
    """Read every dump and trace, in the order of the manifest. A path that leads out of the directory is unreadable."""
    dumps: list[RankDump] = []
    unreadable: list[UnreadableDump] = []
    for artifact in artifacts:
        if artifact.kind not in {ArtifactKind.DUMP, ArtifactKind.TRACE}:
            continue
        path = evidence_dir / artifact.path
        try:
            _check_inside(path, evidence_dir)
            dump = read_dump(path, rank=artifact.rank)
        except (DumpError, OSError) as error:
            unreadable.append(UnreadableDump(rank=artifact.rank, file=str(path), error=_text_of(error)))
            continue
        dumps.append(dump)
        if dump.salvaged:
            cut = f"the file is cut or damaged at byte {dump.cut_at_byte}"
            saved = len(dump.operations)
            unreadable.append(UnreadableDump(rank=artifact.rank, file=str(path), error=cut, salvaged_entries=saved))
    return ReadDumps(dumps=tuple(dumps), unreadable=tuple(unreadable))


def _check_inside(path: Path, directory: Path) -> None:
    if not path.resolve().is_relative_to(directory.resolve()):
        raise DumpError("the manifest names a file outside its directory", where=str(path), next_step="do not trust it")


def _text_of(error: DumpError | OSError) -> str:
    if isinstance(error, OSError):
        return str(error)
    return f"{error.where}: {error.what}" if error.where else error.what
