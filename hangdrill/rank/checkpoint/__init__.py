"""Saves and restores checkpoints inside a stack, and notes what was saved or restored: one sha256 a tensor.

    torchrun ... -m hangdrill.rank.checkpoint save|restore NAME=DIRECTORY ...

A training script of the user's own calls `record(state)` on every rank, right before it saves and right after it
restored, with the same kind of state: `{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}`.
The controller compares the two. Without the variable HANGDRILL_CHECKPOINT_NOTE the call does nothing.
This room imports torch and the standard library alone, judges nothing, and runs with torch 2.11 and newer.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["record"]


def record(state: Mapping[str, Any], *, environ: "Mapping[str, str] | None" = None) -> None:
    """Note every tensor and every plain value of a nested state. Raises OSError when the note cannot be written.

    Hashes this rank's own part of a DTensor, so no rank waits for another one.
    """
    import os

    from hangdrill.rank.checkpoint.notes import NOTE_VARIABLE, write_own_note

    surroundings = os.environ if environ is None else environ
    if prefix := surroundings.get(NOTE_VARIABLE):
        write_own_note(prefix, state, surroundings)
