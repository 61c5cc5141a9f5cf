"""The notes of the ranks (`hangdrill.rank.checkpoint`): what was saved, what was restored, whether it is the same."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

__all__ = ["Note", "NoteError", "TensorNote", "differences", "is_empty", "note_files", "read_notes", "size_text"]

MAX_NAMED = 4
"""So many differences are named; the rest is counted."""


ALSO_TRIED = "; rank local metadata read failed"
"""What torch adds to every error of `.metadata`: that a file which nobody writes by default is not there either."""


class TensorNote(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor, or this rank's part of it. placements, mesh: of a DTensor."""

    shape: tuple[int, ...]
    dtype: str
    sha256: str
    placements: tuple[str, ...] = ()
    mesh: tuple[int, ...] = ()


class NoteError(msgspec.Struct, frozen=True, kw_only=True):
    """What torch raised. where: file, line and function."""

    type: str
    message: str
    where: str = ""
    traceback: str = ""

    @property
    def sentence(self) -> str:
        """The error in one line, and where it was raised."""
        message = " ".join(self.message.split()).partition(ALSO_TRIED)[0]
        text = f"{self.type}: {message[:300]}"
        where = self.where.rpartition("/site-packages/")[2]
        return f"{text} ({where})" if where else text


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Of one rank and one checkpoint."""

    schema: Literal["hangdrill.checkpoint-note/1"]
    rank: int
    world_size: int
    torch: str
    outcome: Literal["done", "failed"]
    tensors: dict[str, TensorNote] = msgspec.field(default_factory=dict)
    values: dict[str, str] = msgspec.field(default_factory=dict)
    error: NoteError | None = None
    took_s: float = 0.0


def note_files(prefix: Path) -> tuple[Path, ...]:
    """The notes that lie there, sorted."""
    return tuple(sorted(prefix.parent.glob(f"{prefix.name}.rank*.json")))


def read_notes(prefix: Path) -> dict[int, Note]:
    """By rank. A note that cannot be read is none: the rank is one that said nothing."""
    found = {}
    for path in note_files(prefix):
        try:
            note = msgspec.json.decode(path.read_bytes(), type=Note)
        except (OSError, msgspec.DecodeError):
            continue
        found[note.rank] = note
    return found


def size_text(notes: Mapping[int, Note]) -> str:
    """How much was compared."""
    tensors = sum(len(note.tensors) for note in notes.values())
    values = sum(len(note.values) for note in notes.values())
    return f"{tensors} tensors and {values} values of {len(notes)} ranks"


def is_empty(notes: Mapping[int, Note]) -> bool:
    """Whether there is nothing to compare: what is equal to nothing is no evidence."""
    return not any(note.tensors or note.values for note in notes.values())


def differences(saved: Mapping[int, Note], restored: Mapping[int, Note]) -> tuple[str, ...]:
    """Everything that is not bit-equal, a sentence each; the first few are named, the rest counted.

    What was restored beyond what was saved (an option that only the newer torch has) is no difference.
    """
    found = [text for rank in sorted(saved) for text in _of_rank(rank, saved[rank], restored.get(rank))]
    more = len(found) - MAX_NAMED
    return (*found[:MAX_NAMED], *([f"and {more} more"] if more > 0 else []))


def _of_rank(rank: int, saved: Note, restored: Note | None) -> Iterator[str]:
    if restored is None:
        yield f"rank {rank} noted nothing that it restored"
        return
    for name, tensor in saved.tensors.items():
        other = restored.tensors.get(name)
        if other is None:
            yield f"rank {rank}: {name} was not restored"
        elif msgspec.structs.replace(other, sha256="") != msgspec.structs.replace(tensor, sha256=""):
            yield f"rank {rank}: {name} has another shape, dtype or placement"
        elif other.sha256 != tensor.sha256:
            yield f"rank {rank}: {name} has other bytes"
    for name, value in saved.values.items():
        other_value = restored.values.get(name)
        if other_value is None:
            yield f"rank {rank}: {name} was not restored"
        elif other_value != value:
            yield f"rank {rank}: {name} is {other_value}, and {value} was saved"
