"""The certification's cells on two GPUs, quickly: nccl of a new torch against an old one and against its own variants.

The same cells as `hangdrill certify` has, arranged for a machine that is lent for minutes. Phases:

    pairs   rounds of four jobs: the old torch's nccl, and the new one's nccl, nccl-legacy and nccl-lazy; the new nccl's
            runs stand in all three comparisons
    comm    the same with start, memory and communication alone, and without nccl-lazy: short jobs, many pairs
    cells   what is not timed, side by side: both roads of the rollback and the planted mistakes, every way to bind a
            rank, what torch leaves of a hang alone, the collector's drill, recovery
    all     cells, then pairs

Needs torch in both Pythons, and hangdrill's own few packages (msgspec, filelock) in this one. Nothing is fetched. OUT
gets four files a phase: report.txt, lines.json, runs.json, evidence.tar.gz.

    PYTHONPATH=. python benchmarks/gpu_canary.py --old PYTHON --new PYTHON --out OUT [--phase pairs|comm|cells|all]
        [--pairs 8] [--limit-s 330]
"""

import argparse
import os
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from gpu_canary_rounds import Rounds, pairs_of

from hangdrill.certify.binding import BindingCell
from hangdrill.certify.canary import CanaryCell
from hangdrill.certify.canary_jobs import run_canary
from hangdrill.certify.canary_others import MEASURES, VARIANTS, VariantCell, variant_parts
from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.canary_runs import Side, job_of
from hangdrill.certify.cells import CellContext, CellResult
from hangdrill.certify.drills import AloneCell, DrillCell
from hangdrill.certify.fingerprints import read_stack
from hangdrill.certify.measures import parts_of
from hangdrill.certify.rollback import RollbackCell
from hangdrill.certify.stacks import BASELINE, CANDIDATE
from hangdrill.drill.waiting import Interrupt, handling_signals
from hangdrill.model.certify_plan import CertifyPlan, Measure, RollbackPlan, StackPlan, Topology, WorkPlan
from hangdrill.report.progress import NoopListener

EVIDENCE = ("*.json", "*.jsonl", "*.log", "*.stacks")
MOST_BYTES = 1_000_000


def measures_of(given: argparse.Namespace) -> tuple[Measure, ...]:
    """What the phase measures in pairs."""
    if given.phase == "comm":
        return MEASURES
    return tuple(one for one in Measure if given.recover or one is not Measure.RECOVERY_TIME)


def plan_of(given: argparse.Namespace) -> CertifyPlan:
    """Two ranks, every topology, a fallback with all that it must have."""
    return CertifyPlan(
        title="two GPUs",
        baseline=StackPlan(python=given.old),
        candidate=StackPlan(python=given.new),
        topologies=tuple(one for one in Topology if one is not Topology.MULTI_NODE),
        measures=measures_of(given),
        workload=WorkPlan(backend=given.backend, pairs=given.pairs, timeout_s=10.0, deadline_s=300.0),
        rollback=RollbackPlan(owner="me", where="this run", verify="this run", expires="2099-01-01"),
    )


class Session:
    """Everything that the phases share."""

    def __init__(self, plan: CertifyPlan, out: Path, interrupt: Interrupt, deadline_s: float) -> None:
        self.plan, self.out, self.interrupt, self.deadline_s = plan, out, interrupt, deadline_s
        self.results: list[CellResult] = []
        self.runs: dict[str, list[CanaryRun]] = {}
        self._began_s = time.monotonic()
        self.stacks = {
            name: read_stack(name, stack.python, env={}, environ=os.environ)
            for name, stack in ((BASELINE, plan.baseline), (CANDIDATE, plan.candidate))
        }
        for stack in self.stacks.values():
            self.say(f"{stack.name}: torch {stack.torch or '-'} {stack.missing}")

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began_s:6.1f} s  {text}", flush=True)

    def context(self, name: str) -> CellContext:
        directory = self.out / "work" / name
        directory.mkdir(parents=True)
        return CellContext(
            plan=self.plan,
            stacks=self.stacks,
            out_dir=self.out,
            cell_dir=directory,
            environ=dict(os.environ),
            interrupt=self.interrupt,
            listener=NoopListener(),
        )


def run_rounds(session: Session, variants: tuple[str, ...], *, ahead: int) -> None:
    """Both stacks, and the variants of the new one's nccl."""
    backend, parts = session.plan.workload.backend, parts_of(session.plan)
    sides = {
        "old": (Side(name="old", stack=BASELINE, backend=backend), parts),
        "new": (Side(name="new", stack=CANDIDATE, backend=backend), parts),
    }
    for variant in variants if backend == "nccl" else ():
        sides[variant] = (Side(name=variant, stack=CANDIDATE, backend=variant), variant_parts(session.plan))
    rounds = Rounds(session.context("pairs"), sides, session.say)
    session.runs = session.runs | rounds.runs
    rounds.run(session.plan.workload.pairs, ahead=ahead, until_s=session.deadline_s)
    session.results.append(CanaryCell(session.plan).judge(pairs_of(rounds.runs, "old", "new"), ()))
    for variant in sides.keys() - {"old", "new"}:
        cell = VariantCell(session.plan, variant)
        session.results.append(cell.judge(pairs_of(rounds.runs, variant, "new"), ()))


def run_cells(session: Session) -> None:
    """What is not timed, side by side; a cell that raises is said and the others go on."""
    plan = session.plan
    cells = [AloneCell(plan), RollbackCell(plan), BindingCell(plan), DrillCell(plan, Topology.SINGLE_NODE)]
    jobs: list[tuple[str, Callable[[CellContext], object]]] = [(cell.id, cell.run) for cell in cells]
    for name in (BASELINE, CANDIDATE):
        jobs.append((f"recovery-{name}", lambda context, name=name: _recover(session, context, name)))
    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = {name: pool.submit(run, session.context(name)) for name, run in jobs}
        for name, future in futures.items():
            try:
                result = future.result()
            except Exception as error:
                session.say(f"{name}: {type(error).__name__}: {error}")
                continue
            session.say(f"{name}: over")
            if isinstance(result, CellResult):
                session.results.append(result)


def _recover(session: Session, context: CellContext, stack: str) -> None:
    side = Side(name=stack, stack=stack, backend=session.plan.workload.backend)
    run = run_canary(job_of(context, side, context.cell_dir / "job", ("dp", "recover")), session.interrupt)
    session.runs[f"recovery-{stack}"] = [run]
    killed = [one.times_ns["killed"] for one in run.ranks if "killed" in one.times_ns]
    again = [one.times_ns["recovered"] for one in run.ranks if "recovered" in one.times_ns]
    took = f"{(max(again) - killed[0]) / 1e9:.1f} s" if killed and again else f"not: {run.trouble()}"
    session.say(f"recovery after a killed rank, {stack}: {took}")


def write_report(session: Session) -> None:
    """Four files, small enough to be carried."""
    lines = [line for result in session.results for line in result.lines]
    differences = [one for result in session.results for one in result.differences]
    controls = [one for result in session.results for one in result.controls]
    text = [f"{line.verdict.value.upper():8}{line.id}\n        {line.detail}" for line in lines]
    text += ["", "differences:", *(f"  {one.what}: {one.baseline} -> {one.candidate}" for one in differences)]
    text += ["", "controls:", *(f"  {one.name}: held {one.held}: {one.detail}" for one in controls)]
    report = "\n".join(text) + "\n"
    print(report)
    (session.out / "report.txt").write_text(report)
    (session.out / "lines.json").write_bytes(msgspec.json.format(msgspec.json.encode(session.results), indent=1))
    (session.out / "runs.json").write_bytes(msgspec.json.encode(session.runs))
    with tarfile.open(session.out / "evidence.tar.gz", "w:gz") as archive:
        for path in sorted({path for pattern in EVIDENCE for path in (session.out / "work").rglob(pattern)}):
            if path.is_file() and path.stat().st_size <= MOST_BYTES:
                archive.add(path, path.relative_to(session.out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", default=sys.executable, help="Python of the baseline")
    parser.add_argument("--new", required=True, help="Python of the candidate")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--phase", choices=("pairs", "comm", "cells", "all"), default="all")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--limit-s", type=float, default=330.0, help="begin no round after this many seconds")
    parser.add_argument("--backend", default="nccl", help="gloo: tries the script itself, without a GPU")
    parser.add_argument("--recover", action="store_true", help="kill and restart a rank in every pair too")
    given = parser.parse_args()
    deadline_s = time.monotonic() + given.limit_s
    given.out.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="gpu-canary-"))
    with Interrupt() as interrupt, handling_signals(interrupt):
        session = Session(plan_of(given), scratch, interrupt, deadline_s)
        try:
            if given.phase in ("cells", "all"):
                run_cells(session)
            if given.phase in ("pairs", "all"):
                run_rounds(session, VARIANTS, ahead=2)
            if given.phase == "comm":
                run_rounds(session, VARIANTS[:1], ahead=3)
        finally:
            write_report(session)
            for name in ("report.txt", "lines.json", "runs.json", "evidence.tar.gz"):
                shutil.copy(scratch / name, given.out / f"{given.phase}-{name}")
            shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
