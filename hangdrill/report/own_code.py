"""Frames -> the one that a person knows: of the user's own code, where there is one."""

import re
from collections.abc import Sequence

from hangdrill.model.dump import Frame

__all__ = ["own_frame"]

TORCHS = re.compile(r"/(site|dist)-packages/torch/|/torch/(_|distributed/|nn/|utils/|autograd/|optim/)|^<")
"""torch's, and what has no file: frozen modules, generated code."""
AGENTS = re.compile(r"/hangdrill/rank/(?!workloads/)")
"""The workloads that ship with the agent stand for the user's code."""
LIBRARYS = re.compile(r"/lib(64)?/python3(\.\d+t?/(?!(site|dist)-packages/)|\d+\.zip/)")
"""The standard library's: of the system, of conda, of pyenv. What is installed beside it is the user's choice."""
STARTERS = re.compile(r"/(runpy|threading|concurrent/futures/\w+|multiprocessing/\w+)\.py$")
"""Of the standard library, what stands outermost of a program or a thread."""


def own_frame(frames: Sequence[Frame]) -> tuple[Frame, bool] | None:
    """The innermost frame of the user's own code, and True. Without one, the outermost that may be a script in a
    directory that is called as the standard library's, else torch's innermost, and False. None of no frames."""
    others = [frame for frame in frames if not TORCHS.search(frame.filename) and not AGENTS.search(frame.filename)]
    for frame in others:
        if not LIBRARYS.search(frame.filename):
            return frame, True
    for frame in reversed(others):
        if not STARTERS.search(frame.filename):
            return frame, False
    return (frames[0], False) if frames else None
