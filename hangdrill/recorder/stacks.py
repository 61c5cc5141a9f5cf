"""The text of a stacks artifact -> the frames of the thread that runs the job. To be shown; nothing is judged by it.

Two formats are known: faulthandler's (torch's `dump_traceback`) and py-spy's.
"""

import re

from hangdrill.model.dump import Frame

__all__ = ["main_thread_frames"]

MOST_THREADS, MOST_FRAMES = 256, 256
_FAULTHANDLER = re.compile(r'  File "(?P<filename>[^"]+)", line (?P<line>\d{1,9}) in (?P<name>.+)')
_PY_SPY = re.compile(r"    (?P<name>\S.*) \((?P<filename>[^()]+):(?P<line>\d{1,9})\)")


def main_thread_frames(text: str) -> tuple[Frame, ...]:
    """Innermost first; () when no thread can be read. Of several threads: the one that began with a module's own code
    (`<module>`), else the last one that has frames, which is the main thread in faulthandler's order."""
    threads = [frames for frames in (_frames(part) for part in _threads(text)) if frames]
    started = [frames for frames in threads if any(frame.name == "<module>" for frame in frames)]
    return (started or threads or [()])[-1]


def _threads(text: str) -> list[str]:
    return re.split(r"^(?:Current thread|Thread) ", text, maxsplit=MOST_THREADS, flags=re.MULTILINE)[1:]


def _frames(thread: str) -> tuple[Frame, ...]:
    found = (_FAULTHANDLER.fullmatch(line) or _PY_SPY.fullmatch(line) for line in thread.splitlines()[:MOST_FRAMES])
    return tuple(
        Frame(filename=match["filename"], line=int(match["line"]), name=match["name"]) for match in found if match
    )
