"""Frames -> Place: the line of the user's code that an operation was called from."""

from collections.abc import Sequence

from hangdrill.model.dump import Frame
from hangdrill.report.own_code import own_frame
from hangdrill.report.story.text import shown
from hangdrill.report.story.values import Place

__all__ = ["place_of"]

MOST_FRAMES = 40


def place_of(frames: Sequence[Frame]) -> Place:
    """The innermost frame of the user's own code; a library's when there is no other."""
    found = own_frame(frames)
    if found is None:
        return Place()
    frame, users = found
    stack = tuple(_line(one, one.filename) for one in frames[:MOST_FRAMES])
    if len(frames) > MOST_FRAMES:
        stack += (f"... {len(frames) - MOST_FRAMES} more",)
    return Place(text=_line(frame, frame.filename.rpartition("/")[2]), users=users, stack=stack)


def _line(frame: Frame, filename: str) -> str:
    return f"{shown(filename)}:{frame.line} in {shown(frame.name, 100)}"
