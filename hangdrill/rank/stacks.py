"""Where the user's program stands, as frames: the innermost frame of the user's own code comes first.

Frames of the agent are left out; those of torch that stand deeper than the user's code follow after it.
The workloads that ship with the agent count as the user's code.
"""

import sys
import sysconfig
import threading
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

__all__ = ["frames_here", "frames_of_main_thread", "frames_of_traceback", "out_of_distributed"]

MAX_FRAMES = 64
HERE = str(Path(__file__).resolve().parent)
WORKLOADS = str(Path(HERE) / "workloads")
STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"] + "/"

Frames = list[dict[str, Any]]


def frames_here() -> Frames:
    """Of this thread; of the main thread when only torch and the agent are on this one (autograd's own threads)."""
    here = _walk(sys._getframe(1))
    if any(_is_user(name) for name, _, _ in here):
        return _arrange(here)
    return frames_of_main_thread()


def frames_of_main_thread() -> Frames:
    """Of the main thread, from any thread."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return _arrange(_walk(frame))


def frames_of_traceback(traceback: TracebackType | None) -> Frames:
    """Of an exception: from where it was raised outwards."""
    return _arrange(_unwind(traceback))


def out_of_distributed(error: BaseException) -> bool:
    """Whether the operation this rank entered last failed with `error`: it came out of torch's communication.

    Arguments that torch.distributed refuses (TypeError, ValueError) never reached an operation, so they do not count.
    """
    if not isinstance(error, RuntimeError) or any(_is_injected(cause) for cause in _causes(error)):
        return False
    if type(error).__name__.startswith("Dist"):
        return True
    text = str(error).lower()
    if any(word in text for word in ("gloo", "nccl", "processgroup", "connection closed by peer")):
        return True
    passed = _unwind(error.__traceback__)
    return bool(passed) and passed[0][0].startswith(_torch_directory() + "distributed/")


def _is_injected(error: BaseException) -> bool:
    return type(error).__name__ == "InjectedFault"


def _causes(error: BaseException) -> Iterable[BaseException]:
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        current = current.__cause__ or current.__context__
    return seen


def _walk(frame: FrameType | None) -> list[tuple[str, int, str]]:
    found = []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found


def _unwind(traceback: TracebackType | None) -> list[tuple[str, int, str]]:
    found = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        found.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    return found[::-1]


def _arrange(innermost_first: list[tuple[str, int, str]]) -> Frames:
    kept = [frame for frame in innermost_first if not _is_agent(frame[0])]
    first = next((index for index, frame in enumerate(kept) if _is_user(frame[0])), 0)
    ordered = kept[first:] + kept[:first]
    return [{"filename": name, "line": line, "name": function} for name, line, function in ordered[:MAX_FRAMES]]


def _is_agent(filename: str) -> bool:
    inside = filename.startswith(HERE) and not filename.startswith(WORKLOADS)
    return inside or filename.startswith("<frozen ") or filename.endswith("/runpy.py")


def _is_user(filename: str) -> bool:
    if _is_agent(filename) or filename.startswith(_torch_directory()):
        return False
    return "-packages/" in filename or not filename.startswith(STANDARD_LIBRARY)


@cache
def _torch_directory() -> str:
    spec = find_spec("torch")
    return str(Path(spec.origin).parent) + "/" if spec is not None and spec.origin else "/torch/"
