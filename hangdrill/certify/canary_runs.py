"""Pairs of canary jobs: one of each side, right after each other, in changing order. Judges nothing."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from hangdrill.certify.canary_jobs import CanaryJob, run_canary
from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.canary_turns import run_in_turns
from hangdrill.certify.cells import CellContext
from hangdrill.certify.kept import keep, read_kept
from hangdrill.certify.measures import sizes_bytes
from hangdrill.certify.stacks import Stack
from hangdrill.rank.canary.turns import IN_TURNS

__all__ = ["HOPELESS_RUNS", "PairRuns", "Side", "in_pairs", "job_of", "run_of_stack", "run_pairs", "without_group"]

HOPELESS_RUNS = 2
"""After this many runs of a side without a process group, the rest would end the same way."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two that are compared. name: as the receipt calls it. stack: whose Python and environment it has."""

    name: str
    stack: str
    backend: str
    variables: dict[str, str] = msgspec.field(default_factory=dict)


class PairRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of both sides: run i of the one was right beside run i of the other."""

    baseline: tuple[CanaryRun, ...] = ()
    candidate: tuple[CanaryRun, ...] = ()
    gave_up: str = ""
    """Why no more pairs were run; empty when all were."""


def run_pairs(context: CellContext, baseline: Side, candidate: Side, *, parts: tuple[str, ...], pairs: int) -> PairRuns:
    """Run them all, and keep every record in the cell's runs.json. Raises MachineError, Interrupted.

    On GPUs the jobs of a pair run one after the other: what a job holds is read of the whole GPU there, and steps do
    not hang on how threads come to lie on cores. Elsewhere they measure in turns.
    """
    sides = {"baseline": baseline, "candidate": candidate}

    def run(role: str, directory: Path) -> CanaryRun:
        run = run_canary(job_of(context, sides[role], directory, parts), context.interrupt)
        return run_of_stack(run, context.stacks[sides[role].stack])

    def run_both(directories: Mapping[str, Path]) -> dict[str, CanaryRun]:
        jobs = [job_of(context, sides[role], directory, parts) for role, directory in directories.items()]
        for left in context.cell_dir.glob("turns-*"):  # by a hangdrill that was killed
            shutil.rmtree(left, ignore_errors=True)
        runs = run_in_turns(jobs[0], jobs[1], context.cell_dir, context.interrupt)
        return {
            role: run_of_stack(run, context.stacks[sides[role].stack])
            for role, run in zip(directories, runs, strict=True)
        }

    names = {role: side.name for role, side in sides.items()}
    on_gpus = any("nccl" in side.backend for side in sides.values())
    together = None if on_gpus or not set(parts) & IN_TURNS else run_both
    return in_pairs(context, run, names=names, pairs=pairs, hopeless=without_group, together=together)


def run_of_stack(run: CanaryRun, stack: Stack) -> CanaryRun:
    """The same run. MachineError when a rank had another torch than the stack's fingerprint: on another node, or by a
    variable of the plan."""
    for record in run.ranks:
        stack.require_torch(record.facts.torch, rank=record.rank, host=record.facts.host)
    return run


def in_pairs(
    context: CellContext,
    run: Callable[[str, Path], CanaryRun],
    *,
    names: Mapping[str, str],
    pairs: int,
    hopeless: Callable[[str, list[CanaryRun]], str],
    together: Callable[[Mapping[str, Path]], Mapping[str, CanaryRun]] | None = None,
) -> PairRuns:
    """run(role, directory) for each role of each pair, AB BA AB ..., and every record in the cell's runs.json.

    A run that was kept before an interruption is not repeated: also what was measured at another hour is a pair.
    names: of the roles, for whoever watches. hopeless: after each pair, why no more of them are to be run, or "".
    together: runs a pair at once, the role of the first key first; a pair of which one run was kept is then repeated.
    """
    found: dict[str, list[CanaryRun]] = {"baseline": [], "candidate": []}
    gave_up = ""
    for pair in range(pairs):
        order = ("baseline", "candidate") if pair % 2 == 0 else ("candidate", "baseline")
        directories = {role: context.cell_dir / f"{pair + 1:02d}-{role}" for role in order}
        said, both = f"pair {pair + 1} of {pairs}", {}
        if together is not None:
            context.listener.phase("canary", f"{said}, {' and '.join(names[role] for role in order)} in turns")
            both = _kept_or_run(directories, names, together)
        else:
            for role in order:
                context.listener.phase("canary", f"{said}, {names[role]}")
                alone = {role: directories[role]}
                both |= _kept_or_run(alone, names, lambda at: {role: run(role, at[role]) for role in at})
        for role, one in both.items():
            found[role].append(one)
        gave_up = next((why for role, runs in found.items() if (why := hopeless(role, runs))), "")
        if gave_up:
            break
    runs = PairRuns(baseline=tuple(found["baseline"]), candidate=tuple(found["candidate"]), gave_up=gave_up)
    (context.cell_dir / "runs.json").write_bytes(msgspec.json.format(msgspec.json.encode(runs), indent=1))
    return runs


def _kept_or_run(
    directories: Mapping[str, Path],
    names: Mapping[str, str],
    run: Callable[[Mapping[str, Path]], Mapping[str, CanaryRun]],
) -> dict[str, CanaryRun]:
    """What an interrupted run of this cell has measured already of these roles, else new runs of all of them, which are
    kept once they have ended."""
    files = {role: at.with_name(f"{at.name}.run.json") for role, at in directories.items()}
    keys = {role: f"{at.name} {names[role]}" for role, at in directories.items()}
    earlier = {role: found for role in files if (found := read_kept(files[role], keys[role], CanaryRun)) is not None}
    if earlier.keys() == files.keys():
        return earlier
    for directory in directories.values():
        shutil.rmtree(directory, ignore_errors=True)
    ran = dict(run(directories))
    for role, one in ran.items():
        keep(files[role], keys[role], one)
    return ran


def without_group(role: str, runs: list[CanaryRun]) -> str:
    """Why a side that made no group in its last runs is given up, or nothing."""
    last = runs[-HOPELESS_RUNS:]
    if len(last) < HOPELESS_RUNS or any(run.slowest("first_collective_s") is not None for run in last):
        return ""
    return f"the {role} made no process group in {HOPELESS_RUNS} runs one after the other: {last[-1].trouble()}"


def job_of(context: CellContext, side: Side, directory: Path, parts: tuple[str, ...]) -> CanaryJob:
    """One job of a side. Ranks choose their GPU by set_device alone, as most scripts do: with a device_id the old
    implementation connects at once too, and what the new one takes before any work would not be seen."""
    work = context.plan.workload
    sizes = ",".join(map(str, sizes_bytes(side.backend)))
    options = (
        "--steps",
        str(work.steps),
        "--sizes-bytes",
        sizes,
        "--seed",
        str(context.plan.seed),
        "--bind",
        "derived",
    )
    return CanaryJob(
        python=context.stacks[side.stack].python,
        environ=context.job_environ(side.stack),
        place=context.place_of(side.stack),
        directory=directory,
        backend=side.backend,
        ranks=work.nproc_per_node,
        parts=parts,
        options=options,
        variables=side.variables,
        max_restarts=1 if "recover" in parts else 0,
        deadline_s=work.deadline_s,
    )
