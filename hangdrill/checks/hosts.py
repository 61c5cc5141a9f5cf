"""Look-ups about the hosts of a job on several: what was done to one, which rank ran where, which were lost. Pure."""

from hangdrill.model.run import NodeFault, NodeStatus, RecordedRun
from hangdrill.model.scenario import FaultKind, Teardown

__all__ = ["host_fault", "lost_hosts", "lost_on_purpose", "node_of", "unheard_hosts"]

NODES_READY = "nodes-ready"
"""The journal's event when every host has come; its detail's `hosts` names them by number."""


def host_fault(run: RecordedRun) -> NodeFault | None:
    """The fault of a host, as its node process reported it; None when it did not."""
    fault = run.scenario.fault
    status = next((status for status in run.nodes if status.node == fault.host_node), None)
    return status.fault if status is not None and fault.on_host else None


def node_of(run: RecordedRun, rank: int) -> NodeStatus | None:
    """The host that a rank ran on, of a job on several: as its node process told it, else as torchrun numbers them."""
    own = next((status for status in run.nodes if rank in status.ranks), None)
    number = rank // run.scenario.job.nproc_per_node
    return own or next((status for status in run.nodes if status.node == number and not status.ranks), None)


def lost_hosts(run: RecordedRun) -> tuple[NodeStatus, ...]:
    """The hosts that had no last word."""
    return tuple(status for status in run.nodes if status.state != "finished")


def unheard_hosts(run: RecordedRun) -> tuple[str, ...]:
    """The hosts that came, by the journal, and whose last word is missing or damaged, or tells of no look."""
    came: dict[str, str] = {}
    for event in run.journal:
        hosts = event.detail.get("hosts")
        if event.name == NODES_READY and isinstance(hosts, dict):
            came |= {str(node): str(host) for node, host in hosts.items()}
    for status in run.nodes:
        if status.leftovers is not None or status.state != "finished":
            came.pop(str(status.node), None)
        else:
            came[str(status.node)] = status.host
    return tuple(host for _, host in sorted(came.items()))


def lost_on_purpose(run: RecordedRun, status: NodeStatus) -> bool:
    """Whether the drill itself took the host away."""
    fault, last = run.scenario.fault, max((known.node for known in run.nodes), default=0)
    died = fault.kind is FaultKind.HOST_DEATH and status.node == fault.host_node
    return died or (Teardown.HOST_LOSS in run.scenario.expect.survives and status.node == last)
