"""hangdrill as a user who is not root, with a home directory of its own; started by tests that run as root.

The interpreter and the checkout may lie below a directory that only root may enter (/root): in a mount namespace of the
test's own such a directory is replaced by one that everybody may enter and that holds the way there alone.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from controls_lab import CHECKOUT

__all__ = ["UID", "plain_directory", "run_as_plain_user", "why_no_plain_user"]

UID = 65534
OPEN_UP = """
mkdir -p "$1/way" && mount --bind "$2/$3" "$1/way"
mount -t tmpfs -o mode=755 tmpfs "$2" && mkdir "$2/$3" && mount --bind "$1/way" "$2/$3"
"""


def why_no_plain_user() -> str:
    """Why it cannot be tried here; "" when it can."""
    if os.getuid() != 0:
        return "only root may become another user"
    missing = [name for name in ("setpriv", "unshare", "mount", "bwrap") if shutil.which(name) is None]
    return f"{missing[0]} is not installed" if missing else ""


@contextlib.contextmanager
def plain_directory() -> Iterator[Path]:
    """A directory of that user's: pytest's own are root's alone."""
    directory = Path(tempfile.mkdtemp(prefix="plain-user-"))
    (directory / "home").mkdir(mode=0o700)
    for path in (directory, directory / "home"):
        os.chown(path, UID, UID)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def run_as_plain_user(words: Sequence[str], directory: Path) -> tuple[int, str]:
    """The exit code and the output of hangdrill with these words."""
    settings = {
        "PATH": "/usr/bin:/bin",
        "HOME": f"{directory}/home",
        "TMPDIR": str(directory),
        "PYTHONPATH": str(CHECKOUT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "200",
    }
    script = "set -e\n" + "".join(_opened(directory)) + 'cd "$0"\nexec "$@"\n'
    plain = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--inh-caps=-all"]
    hangdrill = [sys.executable, "-m", "hangdrill", *words]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(directory), *plain, *hangdrill],
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def _opened(directory: Path) -> Iterator[str]:
    """Commands that let everybody enter what only root may enter on the way to the interpreter and the checkout."""
    needed = (Path(sys.executable), Path(sys.executable).resolve(), CHECKOUT)
    closed = {
        (parent, path.relative_to(parent).parts[0]) for path in needed for parent in path.parents if _closed(parent)
    }
    for number, (parent, child) in enumerate(sorted(closed)):
        place = directory / f"open{number}"
        yield f'set -- {place} {parent} {child} "$@"\n{OPEN_UP}shift 3\n'


def _closed(directory: Path) -> bool:
    return not directory.stat().st_mode & 0o001
