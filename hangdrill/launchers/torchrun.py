"""torchrun on this host. The rendezvous takes a free port by itself, so drills beside each other do not clash."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from hangdrill.launchers.process import start_local
from hangdrill.launchers.protocol import LaunchedJob, LaunchRequest
from hangdrill.model.errors import MachineError

__all__ = ["PROBE", "PROBE_DEADLINE_S", "TorchrunLauncher"]

PROBE_DEADLINE_S = 60.0
PROBE = """
import importlib.util, json, os
spec = importlib.util.find_spec("torch")
home = os.path.dirname(spec.origin) if spec and spec.origin else None
run = home and os.path.exists(os.path.join(home, "distributed", "run.py"))
print(json.dumps({"torch": home, "torchrun": bool(run)}))
"""


class TorchrunLauncher:
    """Starts `python -m torch.distributed.run`, not the script `torchrun`: the ranks' Python is the one asked for."""

    def check(self, request: LaunchRequest) -> None:
        """MachineError when the ranks' Python, its torch or torchrun is missing. Looks without importing torch."""
        _check_executable(request)
        found = _probe(request)
        if found["torch"] is None:
            raise MachineError(
                f"the ranks' Python has no torch: {request.python}",
                next_step="install torch there, or name another one with --python",
            )
        if not found["torchrun"]:
            raise MachineError(
                f"the torch of {request.python} was built without torch.distributed.run",
                where=str(found["torch"]),
                next_step="install a torch with distributed support",
            )

    def command(self, request: LaunchRequest) -> tuple[str, ...]:
        """The exact command. Port 0 lets the rendezvous pick one; the address saves a look-up of the host's name."""
        return (
            request.python,
            "-m",
            "torch.distributed.run",
            "--nnodes",
            str(request.nnodes),
            "--nproc-per-node",
            str(request.nproc_per_node),
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            "127.0.0.1:0",
            "--rdzv-id",
            request.run_id,
            "--local-addr",
            "127.0.0.1",
            "--max-restarts",
            str(request.max_restarts),
            *(("--log-dir", request.log_dir) if request.log_dir else ()),
            "-m",
            "hangdrill.rank",
            request.target,
            *request.args,
        )

    def start(self, request: LaunchRequest) -> LaunchedJob:
        """Start torchrun in a session of its own; MachineError when the system refuses."""
        return start_local(self.command(request), environ=request.environ, cwd=request.cwd, log_path=request.log_path)


def _check_executable(request: LaunchRequest) -> None:
    found = shutil.which(request.python, path=request.environ.get("PATH"))
    if found is None or not os.access(found, os.X_OK):
        raise MachineError(
            f"the ranks' Python does not exist or may not be executed: {request.python}",
            next_step="name another one with --python",
        )
    if request.nnodes != 1:
        raise MachineError(
            f"torchrun on this host starts one node, and the scenario asks for {request.nnodes}",
            where="job.nnodes",
            next_step="set nnodes = 1 and raise nproc_per_node",
        )


def _probe(request: LaunchRequest) -> dict[str, str | bool | None]:
    try:
        done = subprocess.run(
            [request.python, "-c", PROBE],
            env=request.environ,
            cwd=request.cwd if Path(request.cwd).is_dir() else "/",
            capture_output=True,
            timeout=PROBE_DEADLINE_S,
            check=True,
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        detail = getattr(error, "stderr", None) or str(error).encode()
        last_line = (detail.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
        raise MachineError(
            f"the ranks' Python does not work: {request.python}: {last_line}",
            next_step="run it by hand, or name another one with --python",
        ) from error
    return {"torch": found["torch"], "torchrun": found["torchrun"]}
