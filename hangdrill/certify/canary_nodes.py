"""The canary over several nodes: both stacks pair by pair, on a job with ranks on every node of the plan."""

import secrets
import shutil
import time
from pathlib import Path

import msgspec

from hangdrill.certify.canary_backend import BACKEND_CLAIM, backend_line
from hangdrill.certify.canary_jobs import SHARED_STORE, CanaryJob, canary_words, read_back
from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.canary_results import chosen_of, evidence_of, judge_all, left_out_lines, samples_by_name
from hangdrill.certify.canary_runs import PairRuns, Side, in_pairs, job_of, run_of_stack, without_group
from hangdrill.certify.cells import CellContext, CellResult, Claim, Needs
from hangdrill.certify.nodes import torchrun_words
from hangdrill.certify.nodes_job import UNSHARED, NodesJob, run_on_nodes
from hangdrill.certify.nodes_look import look_at_nodes, named_of, nodes_of
from hangdrill.certify.nodes_measures import measured_over_nodes, parts_over_nodes
from hangdrill.certify.stacks import BASELINE, CANDIDATE
from hangdrill.drill.waiting import Waiter
from hangdrill.launchers.agent_path import rank_package
from hangdrill.model.certify_plan import CertifyPlan, Topology
from hangdrill.model.errors import MachineError
from hangdrill.model.receipt import EvidenceFile, Item

__all__ = ["MultiNodeCell", "hopeless", "refuse_images", "run_over_nodes"]

JOB_S = {False: 14.0, True: 35.0}
"""One job over nodes on idle machines, by whether it uses GPUs."""
SEEN_LATE_S = 60.0
"""A network file system may show another node's new file so late."""


class MultiNodeCell:
    """Baseline against candidate, over the nodes of the plan."""

    id = "canary/multi-node"
    topology = Topology.MULTI_NODE.value
    title = "both stacks measured over several nodes, pair by pair"
    goes_on = True

    def __init__(self, plan: CertifyPlan) -> None:
        self._plan = plan
        self._measured, self._left_out = chosen_of(measured_over_nodes(plan), plan)

    @property
    def needs(self) -> Needs:
        """Both stacks, and the program that reaches the nodes. The GPUs are theirs, and not counted on this host."""
        return Needs(programs=self._plan.nodes.run[:1] if self._plan.nodes is not None else ())

    @property
    def claims(self) -> tuple[Claim, ...]:
        """A line for each measure, and the backend by class."""
        backend = Claim(id=f"{self.id}/backend", item=Item.BACKEND, topology=self.topology, claim=BACKEND_CLAIM)
        lines = (
            Claim(id=f"{self.id}/{one.name}", item=one.item, topology=self.topology, claim=one.claim)
            for one in (*self._measured, *self._left_out)
        )
        return (backend, *lines)

    @property
    def estimate_s(self) -> float:
        """Two jobs a pair."""
        return 2 * self._plan.workload.pairs * JOB_S["nccl" in self._plan.workload.backend]

    def run(self, context: CellContext) -> CellResult:
        """The nodes are asked with each stack's Python, then all pairs. Raises MachineError, Interrupted."""
        refuse_images(context, BASELINE, CANDIDATE)
        agent_path = _agent_copy(context.cell_dir / "agent")
        try:
            found = {name: look_at_nodes(context, name, agent_path=agent_path) for name in (BASELINE, CANDIDATE)}
            facts = context.cell_dir / "nodes.json"
            facts.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
            parts = parts_over_nodes(context.plan)
            runs = in_pairs(
                context,
                lambda role, directory: run_over_nodes(context, role, directory, parts=parts, agent_path=agent_path),
                names={name: name for name in (BASELINE, CANDIDATE)},
                pairs=context.plan.workload.pairs,
                hopeless=hopeless,
            )
        finally:
            shutil.rmtree(agent_path, ignore_errors=True)
        return self.judge(runs, (*evidence_of(context, runs), *context.evidence(facts)))

    def judge(self, runs: PairRuns, files: tuple[EvidenceFile, ...]) -> CellResult:
        """Every line from the same runs."""
        paths = tuple(file.path for file in files)
        judged = judge_all(self._measured, runs, self._plan, cell=self.id, evidence=paths)
        backend, difference = backend_line(f"{self.id}/backend", runs, paths, Topology.MULTI_NODE)
        found = [one.difference for one in judged if one.difference is not None]
        return CellResult(
            id=self.id,
            topology=self.topology,
            lines=(backend, *(one.line for one in judged), *left_out_lines(self.claims, self._left_out)),
            differences=(*((difference,) if difference else ()), *found),
            samples=samples_by_name(self._measured, judged),
            artifacts=files,
        )


def hopeless(role: str, runs: list[CanaryRun]) -> str:
    """As on one host; and at once where no rank of a side ever started: nodes wait a minute for each other in vain."""
    if not any(run.ranks for run in runs):
        return f"no rank of the {role} ever started: {runs[-1].trouble()}"
    return without_group(role, runs)


def run_over_nodes(
    context: CellContext, role: str, directory: Path, *, parts: tuple[str, ...], agent_path: Path
) -> CanaryRun:
    """One canary job with ranks on every node. Raises MachineError, Interrupted."""
    nodes, job = nodes_of(context), _job(context, role, directory, parts)
    directory.mkdir(parents=True, exist_ok=True)  # what a killed hangdrill left may still be writing there
    launched_ns = time.time_ns()
    command = torchrun_words(
        nodes,
        python=job.python,
        run_id=f"canary-{secrets.token_hex(4)}",
        nnodes=context.plan.workload.nnodes,
        nproc_per_node=context.plan.workload.nproc_per_node,
        max_restarts=0,
        program=canary_words(job),
    )
    end = run_on_nodes(
        NodesJob(
            nodes=nodes,
            command=command,
            python=job.python,
            environ={SHARED_STORE: "1", **job.environ},
            named=named_of(context, role),
            agent_path=agent_path,
            directory=directory,
            deadline_s=job.deadline_s,
        ),
        context.interrupt,
    )
    if end.exit_code == 0 and not _all_records(directory, job.ranks, Waiter(context.interrupt)):
        why = f"the job ended well, and their records never appeared: {UNSHARED}"
        end = msgspec.structs.replace(end, last_line=why)
    return run_of_stack(read_back(job, end, launched_ns), context.stacks[role])


def _job(context: CellContext, role: str, directory: Path, parts: tuple[str, ...]) -> CanaryJob:
    """As on one host, with the ranks of all nodes; they meet in the store, and rank 0's peer is on the next node."""
    work = context.plan.workload
    job = job_of(context, Side(name=role, stack=role, backend=work.backend), directory, parts)
    return msgspec.structs.replace(
        job,
        ranks=work.nnodes * work.nproc_per_node,
        max_restarts=0,
        options=(*job.options, "--meet", "store", "--peer", str(work.nproc_per_node)),
    )


def _all_records(directory: Path, ranks: int, waiter: Waiter) -> bool:
    def probe() -> bool | None:
        return True if len(list(directory.glob("rank_*.0.json"))) >= ranks else None

    return waiter.until(probe, deadline_s=SEEN_LATE_S, poll_s=0.2) is not None


def refuse_images(context: CellContext, *names: str) -> None:
    """MachineError when one of the stacks is a container image."""
    for name in names:
        if context.stacks[name].image:
            raise MachineError(
                "stacks that are container images are not measured over several nodes",
                where=name,
                next_step="give it as a Python at the same path on every node",
            )


def _agent_copy(directory: Path) -> Path:
    """The ranks' program as files of OUT: where hangdrill is installed, another node may have nothing."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(rank_package(), directory / "hangdrill/rank", ignore=shutil.ignore_patterns("__pycache__"))
    (directory / "hangdrill/__init__.py").write_text('"""The part of hangdrill that runs inside a rank."""\n')
    return directory
