"""Hang evidence over several nodes: a rank of the last node is held, and the collectors must bring every rank's dump.

Every node runs hangdrill's node process (docs/hosts.md), so hangdrill must be installed on each, at the same path.
"""

import sys
from pathlib import Path

import msgspec

import hangdrill
from hangdrill.certify.canary_nodes import refuse_images
from hangdrill.certify.cells import CellContext, CellResult, Claim, Needs
from hangdrill.certify.drills import FILES, IMPORT_S, hold_scenario, line_of_drill, require_own_torch
from hangdrill.certify.nodes_job import NodesJob, run_on_nodes
from hangdrill.certify.nodes_launcher import NodesLauncher
from hangdrill.certify.nodes_look import named_of, nodes_of
from hangdrill.certify.stacks import CANDIDATE
from hangdrill.drill.run import run_drill
from hangdrill.model.certify_plan import CertifyPlan, Topology
from hangdrill.model.errors import MachineError
from hangdrill.model.receipt import Item
from hangdrill.model.scenario import Scenario, Trigger

__all__ = ["NodesDrillCell", "node_drill_cells", "node_scenario"]

LOOK_S = 120.0
RUN = "run"


def node_drill_cells(plan: CertifyPlan) -> tuple["NodesDrillCell", ...]:
    """One, where the plan has several nodes."""
    return (NodesDrillCell(plan),) if Topology.MULTI_NODE in plan.topologies else ()


class NodesDrillCell:
    """The last rank, which is on the last node, is held."""

    id = "drills/collector/multi-node"
    topology = Topology.MULTI_NODE.value
    title = "a rank of the last node is held, and the nodes' collectors pull"

    def __init__(self, plan: CertifyPlan) -> None:
        self._plan = plan

    @property
    def needs(self) -> Needs:
        """The candidate, and the program that reaches the nodes."""
        programs = self._plan.nodes.run[:1] if self._plan.nodes is not None else ()
        return Needs(stacks=(CANDIDATE,), programs=programs)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """One line."""
        claim = "the candidate's hang over several nodes leaves evidence of every rank, and it names the culprit"
        return (Claim(id=f"{self.id}/evidence", item=Item.RECORDER, topology=self.topology, claim=claim),)

    @property
    def estimate_s(self) -> float:
        """Start, stall and teardown."""
        return 2 * IMPORT_S + 1.5 * self._plan.workload.timeout_s

    def run(self, context: CellContext) -> CellResult:
        """Whether hangdrill is on every node, then one drill. Raises MachineError, Interrupted."""
        refuse_images(context, CANDIDATE)
        _look_for_hangdrill(context)
        run_dir = context.cell_dir / RUN
        result = run_drill(
            RUN,
            node_scenario(context.plan),
            run_dir=run_dir,
            python=context.stacks[CANDIDATE].python,
            environ=context.job_environ(CANDIDATE),
            listener=context.listener,
            interrupt=context.interrupt,
            launcher=NodesLauncher(nodes_of(context), named=named_of(context, CANDIDATE)),
        )
        require_own_torch(run_dir, context.stacks[CANDIDATE])
        files = context.evidence(*(run_dir / file for file in FILES if (run_dir / file).is_file()))
        line = line_of_drill(self.claims[0], result, files)
        return CellResult(id=self.id, topology=self.topology, lines=(line,), artifacts=files)


def node_scenario(plan: CertifyPlan) -> Scenario:
    """The drill of one node, on all: the same operation, the last rank of them all."""
    scenario, work = hold_scenario(plan, Topology.SINGLE_NODE, Trigger.COLLECTOR), plan.workload
    last = work.nnodes * work.nproc_per_node - 1
    interface = plan.nodes.interface if plan.nodes is not None else ""
    network = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {}
    return msgspec.structs.replace(
        scenario,
        job=msgspec.structs.replace(scenario.job, nnodes=work.nnodes, env={**network, **scenario.job.env}),
        fault=msgspec.structs.replace(scenario.fault, rank=last),
        expect=msgspec.structs.replace(scenario.expect, culprit=last),
    )


def _look_for_hangdrill(context: CellContext) -> None:
    """MachineError when a node has none where this host has it."""
    directory = context.cell_dir / "look"
    directory.mkdir(parents=True)
    job = NodesJob(
        nodes=nodes_of(context),
        command=(sys.executable, "-m", "hangdrill.node", "--help"),
        python=sys.executable,
        environ=context.job_environ(CANDIDATE),
        named=named_of(context, CANDIDATE),
        agent_path=Path(hangdrill.__file__).parents[1],
        directory=directory,
        deadline_s=LOOK_S,
    )
    context.listener.phase("drill", "is hangdrill on every node?")
    end = run_on_nodes(job, context.interrupt)
    if end.exit_code != 0:
        count = context.plan.workload.nnodes
        raise MachineError(
            f"the drill needs hangdrill on every node: {end.last_line or 'no answer'}",
            where="nodes.run",
            next_step=f"install it on all at {sys.executable}, or drill by hand: `hangdrill run hosts/hold --nnodes "
            f"{count} --out DIR` here, and the same with --node-rank 1 and so on there (docs/hosts.md)",
        )
