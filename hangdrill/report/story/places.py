"""Frames -> Place: the line of the user's code that an operation was called from."""

import re
from collections.abc import Sequence

from hangdrill.model.dump import Frame
from hangdrill.report.story.text import shown
from hangdrill.report.story.values import Place

__all__ = ["place_of"]

MOST_FRAMES = 40

TORCHS = re.compile(r"/(site|dist)-packages/torch/|/torch/(_|distributed/|nn/|utils/|autograd/|optim/)|^<")
AGENTS = re.compile(r"/hangdrill/rank/(?!workloads/)")
"""The workloads that ship with the agent stand for the user's code."""


def place_of(frames: Sequence[Frame]) -> Place:
    """The innermost frame that is neither torch's nor the agent's; torch's innermost when there is no other."""
    if not frames:
        return Place()
    users = next((frame for frame in frames if not _is_torchs(frame.filename)), None)
    frame = users or frames[0]
    stack = tuple(_line(one, one.filename) for one in frames[:MOST_FRAMES])
    if len(frames) > MOST_FRAMES:
        stack += (f"... {len(frames) - MOST_FRAMES} more",)
    return Place(text=_line(frame, frame.filename.rpartition("/")[2]), users=users is not None, stack=stack)


def _is_torchs(filename: str) -> bool:
    return bool(TORCHS.search(filename) or AGENTS.search(filename))


def _line(frame: Frame, filename: str) -> str:
    return f"{shown(filename)}:{frame.line} in {shown(frame.name, 100)}"
