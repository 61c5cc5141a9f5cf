"""What a plan's nodes are, asked before anything is measured on them: a node that cannot take part says why at once."""

import shlex
import shutil
from pathlib import Path

import msgspec

from hangdrill.certify.cells import CellContext
from hangdrill.certify.nodes import node_commands
from hangdrill.certify.nodes_job import FACTS_WORD, UNSHARED, NodesJob, log_of, run_on_nodes
from hangdrill.model.certify_plan import NodesPlan
from hangdrill.model.errors import InternalError, MachineError

__all__ = ["NodeFacts", "facts_in", "look_at_nodes", "named_of", "nodes_of"]

LOOK_S = 120.0
MEND = {
    "OUT": "name a directory with --out that every node sees and may write to",
    "nodes.endpoint": "name a host that every node knows, or its address",
    "nodes.interface": "name an interface that every node has",
}


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it sees itself. holds: whether nodes.endpoint is an address of it."""

    host: str
    address: str
    interface: str = ""
    holds: bool = False
    python: str = ""


def nodes_of(context: CellContext) -> NodesPlan:
    """The plan's; a plan with the topology multi-node has some."""
    if context.plan.nodes is None:
        raise InternalError("the topology multi-node without [nodes] should have been refused with the plan")
    return context.plan.nodes


def look_at_nodes(context: CellContext, stack: str, *, agent_path: Path) -> tuple[NodeFacts, ...]:
    """Ask every node, with that stack's Python. MachineError, with the node's own words, when one cannot take part."""
    nodes, count = nodes_of(context), context.plan.workload.nnodes
    directory = context.cell_dir / f"look-{stack}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    job = NodesJob(
        nodes=nodes,
        command=(),
        python=context.stacks[stack].python,
        environ=context.job_environ(stack),
        named=named_of(context, stack),
        agent_path=agent_path,
        directory=directory,
        deadline_s=min(LOOK_S, context.plan.workload.deadline_s),
    )
    context.listener.phase("canary", f"{count} nodes are asked, {stack}")
    end = run_on_nodes(job, context.interrupt)
    if end.exit_code != 0:
        what = end.last_line or "no output"
        what = f"a node cannot take part: {what}" if end.exit_code is not None else f"no answer of the nodes: {what}"
        raise MachineError(what, where=stack, next_step=_mend(what, nodes))
    found = facts_in(directory)
    problem = _problem(found, nodes, count)
    if problem:
        raise MachineError(problem[0], where=problem[1], next_step=problem[2])
    return found


def named_of(context: CellContext, stack: str) -> tuple[str, ...]:
    """The variables that the plan sets for a job of the stack."""
    return (*context.plan.workload.env, *context.stacks[stack].env)


def facts_in(directory: Path) -> tuple[NodeFacts, ...]:
    """What the nodes' outputs say of them. MachineError when one of them is cut, or mixed with another's."""
    found = []
    for log in sorted(directory.glob(f"{log_of(directory, 0).stem}*.log")):
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            _, word, text = line.partition(FACTS_WORD)
            if word:
                found.append(_one_of(text))
    return tuple(found)


def _one_of(text: str) -> NodeFacts:
    try:
        return msgspec.json.decode(text, type=NodeFacts)
    except (msgspec.DecodeError, RecursionError) as error:
        hint = "let the output of each node through as it is, line by line"
        raise MachineError(f"a node's answer is garbled: {text[:80]!r}", where="nodes.run", next_step=hint) from error


def _problem(found: tuple[NodeFacts, ...], nodes: NodesPlan, count: int) -> tuple[str, str, str] | None:
    """(what, where, what next), of nodes of which each has answered."""
    if len(found) != count:
        hint = "it must start the command once on each node, and let its output through"
        return f"{count} nodes are planned, and {len(found)} answered", "nodes.run", hint
    if len({(one.host, one.address) for one in found}) < count:
        where = ", ".join(f"{one.host} {one.address}" for one in found)
        return f"two of the nodes are the same: {where}", "nodes.run", "start the command once on each node"
    if not any(one.holds for one in found):
        where = ", ".join(f"{one.host} {one.address}" for one in found)
        what = f"no node has the address of {nodes.endpoint}: {where}"
        return what, "nodes.endpoint", "name one of the nodes, with a port that is free there"
    return None


def _mend(what: str, nodes: NodesPlan) -> str:
    for word, hint in MEND.items():
        if word in what or (word == "OUT" and UNSHARED in what):
            return hint
    prefix = node_commands(nodes, ("hostname",))[-1].words
    return f"try it by hand: {shlex.join(prefix)}"
