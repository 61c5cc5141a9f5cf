"""`python -m hangdrill.collector.sidecar`: the collector as a sidecar container, which may not end before its pod.

A sidecar that ends is started again, and would watch ranks that are gone. So when the collector is done this process
writes its exit code into --exit-file and waits for TERM; started anew beside such a file it only waits. What follows
`--` is the collector's.
"""

import argparse
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from hangdrill.collector.__main__ import parse
from hangdrill.collector.collect import collect
from hangdrill.model.errors import ExitCode, HangdrillError

__all__ = ["main"]

STOPPING = (signal.SIGTERM, signal.SIGINT)


def main(arguments: list[str] | None = None) -> int:
    """Collect, say how it went, and stay until TERM. Returns the collector's exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(prog="python -m hangdrill.collector.sidecar", description=__doc__)
    parser.add_argument("--log", type=Path, help="append the collector's output to this file")
    parser.add_argument("--exit-file", type=Path, required=True, help="gets the collector's exit code when it is done")
    options = parser.parse_args(words[:cut])
    stop = _Stop()
    if options.log is not None:
        _append_output(options.log)
    code = int(ExitCode.PASS)
    if not options.exit_file.exists():
        code = _collect(words[cut + 1 :], stop)
        _tell(options.exit_file, code)
    stop.wait()
    return code


class _Stop:
    """Set by TERM or INT; a signal that comes while nobody waits is not lost."""

    def __init__(self) -> None:
        self._signalled = False
        for number in STOPPING:
            signal.signal(number, self._on_signal)

    def is_set(self) -> bool:
        return self._signalled

    def wait(self) -> None:
        """Returns at once when it is set."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        if not self._signalled:
            signal.sigwait(STOPPING)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signalled = True


def _collect(words: list[str], stop: _Stop) -> int:
    try:
        collect(parse(words), stop)
    except HangdrillError as error:
        print(f"collector: {error}", file=sys.stderr, flush=True)
        return int(error.exit_code)
    except SystemExit as end:  # its parser's
        return end.code if isinstance(end.code, int) else int(ExitCode.USAGE)
    return int(ExitCode.PASS)


def _append_output(path: Path) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)


def _tell(path: Path, code: int) -> None:
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(f"{code}\n")
    unfinished.rename(path)


if __name__ == "__main__":
    sys.exit(main())
