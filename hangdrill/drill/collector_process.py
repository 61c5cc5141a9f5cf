"""Starting the collector as a process of its own, beside the controller or on a node of the job."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import hangdrill
from hangdrill.model.errors import MachineError

__all__ = ["start_collector"]


def start_collector(
    command: Sequence[str], *, environ: Mapping[str, str], cwd: Path, log_path: Path
) -> "subprocess.Popen[bytes]":
    """In a session of its own, with this hangdrill; MachineError when the system refuses."""
    package_parent = str(Path(hangdrill.__file__).resolve().parent.parent)
    python_path = os.pathsep.join(part for part in (package_parent, environ.get("PYTHONPATH", "")) if part)
    try:
        with log_path.open("ab") as log:
            return subprocess.Popen(
                command,
                env={**environ, "PYTHONPATH": python_path},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise MachineError(
            f"cannot start the collector: {error.strerror or error}", next_step="check that processes are left"
        ) from error
