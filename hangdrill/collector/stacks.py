"""Python stacks of a rank from outside, by py-spy, when the rank cannot tell them itself."""

import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

__all__ = ["dump_with_pyspy"]

_DEADLINE_S = 4.0
_OUTPUT_LIMIT_BYTES = 4 * 1024 * 1024


@lru_cache(maxsize=1)
def find_pyspy() -> str | None:
    """Beside this Python (as `pip install hangdrill[stacks]` puts it), else on the path."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def dump_with_pyspy(pid: int) -> bytes | str:
    """The stacks as text, or a sentence that says why there are none. Never stops the process to look."""
    program = find_pyspy()
    if program is None:
        return "py-spy: not installed (pip install 'hangdrill[stacks]')"
    command = [program, "dump", "--pid", str(pid), "--nonblocking"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_DEADLINE_S, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return f"py-spy: no answer within {_DEADLINE_S:g} s"
    except OSError as error:
        return f"py-spy: {error.strerror}"
    if done.returncode != 0 or not done.stdout.strip():
        words = " ".join(done.stderr.decode("utf-8", "replace").split())[:200]
        return f"py-spy: ended with {done.returncode}: {words}"
    return done.stdout[:_OUTPUT_LIMIT_BYTES]
