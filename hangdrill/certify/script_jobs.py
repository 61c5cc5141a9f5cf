"""The user's own script as a job: under the stack's torchrun, counted by `hangdrill.rank.canary.script`, and ended
whatever it does. The same arguments, working directory (the script's own) and seed on both sides.
"""

import re
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from hangdrill.certify.canary_records import CanaryRun, read_run
from hangdrill.certify.canary_runs import HOPELESS_RUNS, PairRuns, in_pairs, run_of_stack
from hangdrill.certify.cells import CellContext
from hangdrill.certify.checkpoint_jobs import Job, run_job, tail_of
from hangdrill.certify.stacks import BASELINE, CANDIDATE, Stack
from hangdrill.launchers.agent_path import prepare_agent_path
from hangdrill.launchers.box import home_of
from hangdrill.launchers.protocol import LaunchRequest
from hangdrill.launchers.torchrun import TorchrunLauncher

__all__ = ["SEED_VARIABLE", "arguments_of", "placement_of", "run_script", "run_script_pairs", "seed_variables"]

SEED_VARIABLE = "HANGDRILL_SEED"
HASH_VARIABLE = "PYTHONHASHSEED"
HASH_SEEDS = 2**32
OUT = "{out}"
HOOKS_SINCE = (2, 14)
"""torch has pre-hooks of process groups from this version on."""
_EXIT_CODE = re.compile(r"exitcode\s*:\s*(-?\d+)")
"""How torchrun tells the end of a rank."""


def run_script_pairs(context: CellContext, require_same: Callable[[], None]) -> PairRuns:
    """All pairs of the plan's script, and every record in the cell's runs.json. Raises MachineError, Interrupted.

    require_same: raises once the script was edited; it is called before a run is kept, so that none of another text is
    taken by a later --resume when the script is what it was again.
    """
    placement = placement_of(context.stacks)

    def run(role: str, directory: Path) -> CanaryRun:
        found = run_of_stack(run_script(context, role, directory, placement=placement), context.stacks[role])
        require_same()
        return found

    names = {role: f"{role}, your script" for role in (BASELINE, CANDIDATE)}
    return in_pairs(context, run, names=names, pairs=context.plan.workload.pairs, hopeless=_hopeless)


def run_script(context: CellContext, stack: str, directory: Path, *, placement: str = "auto") -> CanaryRun:
    """Run it once, to its end or `workload.deadline_s`. What it wrote to {out} is removed: it is no evidence."""
    work, found = context.plan.workload, context.stacks[stack]
    script = Path(work.script or "")
    directory.mkdir(parents=True)
    out = directory / "out"
    environ = context.job_environ(stack)
    log = directory / "job.log"
    job = Job(
        command=_command(context, found.python, directory, placement, arguments_of(work.args, out)),
        python=found.python,
        environ=environ,
        agent_path=prepare_agent_path(directory / "agent"),
        cwd=script.parent,
        log=log,
        deadline_s=work.deadline_s,
        extra=seed_variables(context.plan.seed, environ),
        place=context.place_of(stack),
        sees=(home_of(script, context.environ),),
    )
    launched_ns = time.time_ns()
    try:
        end = run_job(job, context.interrupt)
    finally:  # also after an interrupt: it may be the checkpoints of a large model
        shutil.rmtree(out, ignore_errors=True)
    records, unreadable = read_run(directory, world_size=work.nproc_per_node)
    _tidy(directory)
    return CanaryRun(
        world_size=work.nproc_per_node,
        ranks=records,
        unreadable=unreadable,
        exit_code=end.exit_code,
        launched_ns=launched_ns,
        ended_ns=launched_ns + round(end.took_s * 1e9),
        wall_s=end.took_s,
        last_line=_said(end.last_line, log),
    )


def arguments_of(args: tuple[str, ...], out: Path) -> tuple[str, ...]:
    """The script's arguments; {out} becomes a new directory, which is made when an argument names it."""
    if any(OUT in arg for arg in args):
        out.mkdir(parents=True)
    return tuple(arg.replace(OUT, str(out)) for arg in args)


def seed_variables(seed: int, environ: Mapping[str, str]) -> dict[str, str]:
    """How the plan's seed reaches the script. A PYTHONHASHSEED of the user's own stays."""
    variables = {SEED_VARIABLE: str(seed)}
    if HASH_VARIABLE not in environ:
        variables[HASH_VARIABLE] = str(seed % HASH_SEEDS)
    return variables


def placement_of(stacks: Mapping[str, Stack]) -> str:
    """Both sides are counted alike: by wrapped functions on both when one of them has no pre-hooks."""
    old = [name for name in (BASELINE, CANDIDATE) if stacks[name].torch and _version(stacks[name].torch) < HOOKS_SINCE]
    return "wrapped" if old else "auto"


def _version(torch: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", torch)[:2])


def _command(
    context: CellContext, python: str, directory: Path, placement: str, args: tuple[str, ...]
) -> tuple[str, ...]:
    work = context.plan.workload
    request = LaunchRequest(
        run_id=f"script-{secrets.token_hex(4)}",
        python=python,
        nnodes=1,
        nproc_per_node=work.nproc_per_node,
        max_restarts=0,
        target="-m",
        args=("hangdrill.rank.canary.script", str(directory), placement, str(work.script), *args),
        environ={},
        cwd="",
        log_path="",
    )
    return TorchrunLauncher().command(request)


def _hopeless(role: str, runs: list[CanaryRun]) -> str:
    """A script that failed this often would go on to."""
    last = runs[-HOPELESS_RUNS:]
    if len(last) < HOPELESS_RUNS or any(run.exit_code == 0 for run in last):
        return ""
    return f"the script failed on the {role} in {HOPELESS_RUNS} runs one after the other: {last[-1].trouble()}"


def _said(last_line: str, log: Path) -> str:
    """torchrun's own last words say nothing of the rank; its exit code does."""
    if "ChildFailedError" not in last_line:
        return last_line
    found = _EXIT_CODE.search(tail_of(log))
    return f"a rank ended with {found.group(1)}, without an error" if found is not None else last_line


def _tidy(directory: Path) -> None:
    shutil.rmtree(directory / "agent", ignore_errors=True)
    for counts in directory.glob("rank_*.ops"):
        counts.unlink(missing_ok=True)
