"""A batch job of Slurm: sbatch of a script that starts a node process on each node, which starts torchrun there.

Needs no accounting (sacct is never used), and no root. The run directory must lie where all nodes see it.
"""

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hangdrill.checks.words import count_text
from hangdrill.launchers.hosts import node_environ
from hangdrill.launchers.protocol import LaunchedJob, LaunchRequest
from hangdrill.launchers.slurm_commands import SUBMIT, Slurm
from hangdrill.launchers.slurm_job import PRIVATE_TMP, SlurmJob
from hangdrill.launchers.slurm_script import BatchJob, render
from hangdrill.launchers.torchrun import TorchrunLauncher
from hangdrill.model.errors import MachineError, UsageError

__all__ = ["SCRIPT", "SlurmLauncher", "controller_of", "shared_place_problem"]

SCRIPT = "slurm.sh"
NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/run")
_CONTROLLER = "HANGDRILL_CONTROLLER"


class SlurmLauncher:
    """One node process a node, `job.nnodes` of them."""

    def __init__(self, node_program: tuple[str, ...] = (sys.executable, "-m", "hangdrill.node")) -> None:
        self._node_program = node_program

    def check(self, request: LaunchRequest) -> None:
        """MachineError when a command, slurmctld, enough nodes or torch is missing, or sbatch refuses such a job."""
        slurm = Slurm(node_environ(request.environ, request.set_environ))
        slurm.check()
        if problem := shared_place_problem(request.run_dir):
            raise UsageError(
                f"the run directory is {problem}: the nodes would not see it",
                where=request.run_dir,
                next_step="name a directory that all nodes share with --out, in your home or scratch directory",
            )
        if "\\" in request.run_dir:
            raise UsageError(
                "Slurm takes a backslash in a path for something else",
                where=request.run_dir,
                next_step="name another directory with --out",
            )
        nodes = slurm.usable_nodes(request.sbatch)
        if nodes < request.nnodes:
            if nodes == 0:  # a partition that is not there has none: sbatch says which it does not know
                slurm.try_out(render(self._batch_job(request)))
            raise MachineError(
                f"the scenario asks for {count_text(request.nnodes, 'node')}, and {nodes} can be used",
                where="job.nnodes",
                next_step="look at sinfo, name another partition with --sbatch=--partition=..., or use fewer nodes",
            )
        TorchrunLauncher().check(msgspec.structs.replace(request, nnodes=1))
        slurm.try_out(render(self._batch_job(request)))

    def command(self, request: LaunchRequest) -> tuple[str, ...]:
        """What submits the job."""
        return (*SUBMIT, f"{request.run_dir}/{SCRIPT}")

    def start(self, request: LaunchRequest) -> LaunchedJob:
        """Write the script into the run directory and submit it; MachineError when sbatch refuses."""
        script = Path(request.run_dir) / SCRIPT
        script.write_text(render(self._batch_job(request)))
        script.chmod(0o700)
        slurm = Slurm(node_environ(request.environ, request.set_environ))
        private_tmp = slurm.config().get("JobContainerType") == PRIVATE_TMP
        return SlurmJob(slurm, slurm.submit(str(script)), request, private_tmp=private_tmp)

    def _batch_job(self, request: LaunchRequest) -> BatchJob:
        return BatchJob(
            run_id=request.run_id,
            comment=_comment(request.environ),
            nnodes=request.nnodes,
            nproc_per_node=request.nproc_per_node,
            limit_s=request.limit_s,
            cwd=request.cwd,
            log_path=request.log_path,
            python_path=node_environ(request.environ, request.set_environ)["PYTHONPATH"],
            node_command=(*self._node_program, "--run", request.run_dir, "--node", "slurm"),
            site_options=request.sbatch,
        )


def shared_place_problem(path: str) -> str:
    """What is known of a directory that no other host can see, in words; "" when nothing speaks against it."""
    root = next((root for root in NODE_LOCAL if f"{os.path.realpath(path)}/".startswith(f"{root}/")), "")
    return f"below {root}, which is each host's own" if root else ""


def controller_of(comment: str) -> tuple[str, str]:
    """The host of the controller that submitted a job, and its "pid:ticks" there; empty for any other comment."""
    mark, _, rest = comment.partition("@")
    host, _, process = rest.partition("/")
    return (host, process) if mark == f"hangdrill:{os.getuid()}" else ("", "")


def _comment(environ: Mapping[str, str]) -> str:
    """Whose job this is: by it `hangdrill clean` proves on the controller's host that it is gone."""
    return f"hangdrill:{os.getuid()}@{socket.gethostname()}/{environ.get(_CONTROLLER, '')}"
