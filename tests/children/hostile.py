"""A process that does not want to end: `hostile.py MODE READY_FILE`. It writes its pid (or that of the one that stays)
to READY_FILE once it is as hostile as it gets, and lives until it is killed.
"""

import os
import signal
import sys
from pathlib import Path

DEADLY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def ready(path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(str(os.getpid()))
    temporary.replace(path)


def stay() -> None:
    while True:
        signal.pause()


def polite(path: Path) -> None:
    ready(path)
    stay()


def odd_name(path: Path) -> None:
    Path("/proc/self/comm").write_text("a) R (b")
    polite(path)


def ignores_signals(path: Path) -> None:
    for number in DEADLY:
        signal.signal(number, signal.SIG_IGN)
    ready(path)
    stay()


def daemon(path: Path) -> None:
    """Double fork, a session of its own; the parent is gone and init has the child."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    ignores_signals(path)


def stopped(path: Path) -> None:
    ready(path)
    os.kill(os.getpid(), signal.SIGSTOP)
    stay()


def parent_of_zombie(path: Path) -> None:
    if os.fork() == 0:
        os._exit(0)
    ignores_signals(path)


def nameless(path: Path) -> None:
    """A grandchild without our environment, in a session of its own: known by descent while its parent lives."""
    if os.fork() == 0:
        os.setsid()
        os.execve(sys.executable, [sys.executable, "-S", "-E", __file__, "ignores_signals", str(path)], {})
    stay()


def breeder(path: Path) -> None:
    """Starts another one of itself whenever it is asked to end, until it is killed."""

    def again(number: int, frame: object) -> None:
        os.fork()

    signal.signal(signal.SIGTERM, again)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ready(path)
    stay()


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
