"""The table [nodes] of a plan, checked across keys: several nodes have names or a number, a way to be reached, and a
place to meet. Pure."""

import re
from collections.abc import Iterator

import msgspec

from hangdrill.drill.scenario_shape import Problem
from hangdrill.model.certify_plan import CertifyPlan, NodesPlan, Topology

__all__ = ["COMMAND", "NODE", "endpoint_of", "node_mistakes", "with_node_count"]

NODE, COMMAND = "{node}", "{command}"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]*")
MAX_PORT = 65535
FEWEST = 2
EXAMPLE = '[nodes] with names = ["node-a", "node-b"], run = ["ssh", "{node}", "{command}"], endpoint = "node-a:29400"'


def with_node_count(plan: CertifyPlan) -> CertifyPlan:
    """workload.nnodes as the names say, where the plan leaves it at 1."""
    if plan.nodes is None or not plan.nodes.names or plan.workload.nnodes != 1:
        return plan
    work = msgspec.structs.replace(plan.workload, nnodes=len(plan.nodes.names))
    return msgspec.structs.replace(plan, workload=work)


def node_mistakes(plan: CertifyPlan) -> Iterator[Problem]:
    """What is wrong with the nodes of a plan that went through `with_node_count`."""
    nodes, several = plan.nodes, Topology.MULTI_NODE in plan.topologies
    if several and nodes is None:
        yield Problem("topologies", '"multi-node" needs to know the nodes', f"add {EXAMPLE}")
    elif nodes is not None and not several:
        yield Problem("nodes", "they are for the topology multi-node", 'add "multi-node" to topologies')
    elif nodes is None:
        if plan.workload.nnodes != 1:
            found = plan.workload.nnodes
            yield Problem("workload.nnodes", f"{found} nodes need the topology multi-node", f"add it, and {EXAMPLE}")
    else:
        yield from _name_mistakes(nodes, plan.workload.nnodes)
        yield from _run_mistakes(nodes)
        if endpoint_of(nodes.endpoint) is None:
            hint = 'write HOST:PORT with a port from 1 to 65535, such as "node-a:29400"'
            yield Problem("nodes.endpoint", f'"{nodes.endpoint}" is no place to meet', hint)


def endpoint_of(text: str) -> tuple[str, int] | None:
    """(host, port) of HOST:PORT or [IPV6]:PORT; None for anything else. Port 0 is none that others could know."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or re.search(r"[\s/\[\]]", host) or not port.isdecimal() or not 1 <= int(port) <= MAX_PORT:
        return None
    return host, int(port)


def _name_mistakes(nodes: NodesPlan, count: int) -> Iterator[Problem]:
    for name in nodes.names:
        if not NAME.fullmatch(name):
            yield Problem("nodes.names", f'"{name}" is no name of a node', "it begins with a letter or a digit")
    for name in sorted({name for name in nodes.names if nodes.names.count(name) > 1}):
        yield Problem("nodes.names", f'"{name}" stands there twice', "name each node once")
    if nodes.names and count != len(nodes.names):
        told = f"{count}, and nodes.names has {len(nodes.names)}"
        yield Problem("workload.nnodes", f"it is {told}", "leave it out, or make them agree")
    elif count < FEWEST:
        yield Problem("nodes.names", "several nodes are two or more", 'name them: ["node-a", "node-b"]')
    if not nodes.names and any(NODE in word for word in nodes.run):
        yield Problem("nodes.names", "{node} in nodes.run stands for a name, and there is none", "name the nodes")


def _run_mistakes(nodes: NodesPlan) -> Iterator[Problem]:
    if not nodes.run or not nodes.run[0]:
        hint = 'for example ["ssh", "{node}", "{command}"], or ["srun", "--nodes=2", "--ntasks-per-node=1"]'
        yield Problem("nodes.run", "there is no program", hint)
    elif sum(word.count(COMMAND) for word in nodes.run) > 1:
        yield Problem("nodes.run", "{command} stands there twice", "write it once, or leave it out")
