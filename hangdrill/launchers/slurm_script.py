"""The batch script of a drill under Slurm, and which options of sbatch a site may add to it. Pure.

The script stays in the run directory, so that a user can read what was submitted, and submit it again. The job's
environment is not in it: sbatch carries it, so that no value shows in a command line.
"""

import math
import shlex
from collections.abc import Mapping

import msgspec

__all__ = ["BatchJob", "job_name", "mistake_in", "render", "submit_environ"]

NEEDED = frozenset({
    "array", "begin", "chdir", "clusters", "comment", "error", "export", "export-file", "get-user-env", "help", "hold",
    "input", "job-name", "no-requeue", "nodes", "ntasks", "ntasks-per-node", "open-mode", "output", "parsable",
    "requeue", "signal", "test-only", "time", "usage", "version", "wait", "wrap",
})  # fmt: skip
"""What hangdrill sets itself, or what would keep the job from being followed."""
_UNSAFE = frozenset("\"'\\`$#\n\r\t")
_OF_THIS_JOB = ("SLURM_CONF", "SLURM_TIME_FORMAT")
_NOT_THE_JOBS = frozenset({
    "HANGDRILL_CONTROLLER",
    "SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_ERROR", "SBATCH_EXPORT", "SBATCH_GET_USER_ENV", "SBATCH_INPUT",
    "SBATCH_JOB_NAME", "SBATCH_NO_REQUEUE", "SBATCH_OPEN_MODE", "SBATCH_OUTPUT", "SBATCH_REQUEUE", "SBATCH_SIGNAL",
    "SBATCH_TIMELIMIT", "SBATCH_WAIT", "SBATCH_WAIT_ALL_NODES",
})  # fmt: skip
END_ORDERLY_S = 60
"""Before the time limit the node processes are told to end, so that what was collected is stored."""


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """What is submitted. node_command runs once on each node; comment tells `hangdrill clean` whose job it is."""

    run_id: str
    comment: str
    nnodes: int
    nproc_per_node: int
    limit_s: float
    cwd: str
    log_path: str
    python_path: str
    node_command: tuple[str, ...]
    site_options: tuple[str, ...] = ()


def job_name(run_id: str) -> str:
    """By it the jobs of a run are found."""
    return f"hangdrill:{run_id}"


def mistake_in(option: str) -> str:
    """Why an option of the site cannot be passed to sbatch; "" when it can."""
    name, _, value = option.removeprefix("--").partition("=")
    if not option.startswith("--") or not name:
        return "it must be one long option, such as --partition=gpu"
    if " " in name:
        return f"write its value behind an equals sign: {option.replace(' ', '=', 1)}"
    if _UNSAFE & set(name + value) or not (name + value).isprintable():
        return "quotes, backslashes, $, # and line breaks cannot stand in a batch script's options"
    taken = sorted(needed for needed in NEEDED if needed.startswith(name))  # Slurm takes abbreviations
    return f"hangdrill needs --{taken[0]} itself" if taken else ""


def render(job: BatchJob) -> str:
    """The script. A later option wins: the defaults come first, what hangdrill needs comes last."""
    minutes = math.ceil((job.limit_s + END_ORDERLY_S) / 60)
    options = (
        *(
            ()
            if any(o.startswith("--cpus-per-") for o in job.site_options)
            else (f"--cpus-per-task={job.nproc_per_node}",)
        ),
        *job.site_options,
        f"--job-name={job_name(job.run_id)}",
        f"--comment={job.comment}",
        f"--nodes={job.nnodes}",
        f"--ntasks={job.nnodes}",
        "--ntasks-per-node=1",
        f"--time={minutes}",
        f"--signal=TERM@{END_ORDERLY_S}",
        "--no-requeue",
        "--export=ALL",
        f"--output={job.log_path.replace('%', '%%')}",
        "--open-mode=append",
        f"--chdir={job.cwd}",
    )
    step = (
        "srun",
        f"--nodes={job.nnodes}",
        f"--ntasks={job.nnodes}",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--mpi=none",
        "--export=ALL",
        "--input=none",
        "--unbuffered",
        *job.node_command,
    )
    lines = (
        "#!/bin/sh",
        f"# Written by hangdrill for the drill {job.run_id}. Read it as you like; `hangdrill run` submits its own.",
        *(f"#SBATCH {_quoted(option)}" for option in options),
        "",
        "# hangdrill itself, for the node processes: the ranks get the PYTHONPATH of the job.",
        f"export PYTHONPATH={shlex.quote(job.python_path)}",
        "# Since Slurm 22.05 srun does not take the batch job's --cpus-per-task by itself.",
        '[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"',
        f"exec {shlex.join(step)}",
    )
    return "\n".join(lines) + "\n"


def submit_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of sbatch, which is the job's: without the traces of an outer job of Slurm, and without variables
    that would override the script's own options. Those of the site (SBATCH_PARTITION, SBATCH_ACCOUNT, ...) stay. The
    controller's pid says nothing on another host."""
    return {
        key: value
        for key, value in environ.items()
        if key not in _NOT_THE_JOBS and (key in _OF_THIS_JOB or not key.startswith(("SLURM_", "SLURMD_", "SRUN_")))
    }


def _quoted(option: str) -> str:
    """As sbatch reads a line: double quotes, and a backslash before what would end them."""
    name, equals, value = option.partition("=")
    if not set(value) & set(" \"'\\#\t"):
        return option
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}{equals}"{escaped}"'
