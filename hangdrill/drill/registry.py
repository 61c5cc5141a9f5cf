"""Which drills are running on this host: one small file each, so that `clean` finds those whose controller died.

One directory a user, private, whose place does not depend on the login: a drill from cron and one from a terminal must
see each other (so not XDG_RUNTIME_DIR, which cron lacks). HANGDRILL_RUNTIME_DIR names another one.
"""

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hangdrill.drill.layout import write_json
from hangdrill.drill.procfs import ProcessId
from hangdrill.model.errors import MachineError

__all__ = [
    "Registration",
    "open_runtime_dir",
    "register",
    "registrations",
    "runtime_root",
    "unregister",
]

VARIABLE = "HANGDRILL_RUNTIME_DIR"


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A running drill. The controller is known by its pid and its start time."""

    run_id: str
    name: str
    controller: ProcessId
    run_dir: str
    resources: tuple[str, ...] = ()


def runtime_root(environ: Mapping[str, str]) -> Path:
    """The directory of this user's running drills and locks; it need not exist yet."""
    return Path(environ.get(VARIABLE) or f"/tmp/hangdrill-{os.getuid()}")


def open_runtime_dir(environ: Mapping[str, str]) -> Path:
    """Make it if need be. MachineError when it is not ours alone: in /tmp another user may have made it first."""
    root = runtime_root(environ)
    try:
        with contextlib.suppress(FileExistsError):
            root.mkdir(mode=0o700)
        found = root.lstat()
    except OSError as error:
        raise MachineError(
            f"cannot make the directory of running drills: {error.strerror or error}",
            where=str(root),
            next_step=f"set {VARIABLE} to a private directory",
        ) from error
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    if not private:
        raise MachineError(
            "the directory of running drills is not this user's alone",
            where=str(root),
            next_step=f"remove it, or set {VARIABLE} to a private directory",
        )
    return root


def register(root: Path, registration: Registration) -> None:
    """Enter a drill, before its first process starts."""
    write_json(_path(root, registration.run_id), registration)


def unregister(root: Path, run_id: str) -> None:
    """Remove a drill, after its last process is gone. Safe to repeat."""
    with contextlib.suppress(OSError):
        _path(root, run_id).unlink()


def registrations(root: Path) -> tuple[Registration, ...]:
    """All drills entered; what cannot be read is not a registration."""
    found: list[Registration] = []
    with contextlib.suppress(OSError):
        for path in sorted(root.glob("drill-*.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                found.append(msgspec.json.decode(path.read_bytes(), type=Registration))
    return tuple(found)


def _path(root: Path, run_id: str) -> Path:
    return root / f"drill-{run_id}.json"
