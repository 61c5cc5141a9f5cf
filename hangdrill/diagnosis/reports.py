"""What the collector's reports add: operations that failed although the recorder calls them over, and why a rank is
absent.
"""

from collections.abc import Iterable, Mapping

from hangdrill.diagnosis.groups import GroupView
from hangdrill.model.dump import Operation
from hangdrill.model.run import RankExit, RankPull, RankState

__all__ = [
    "collectives_counted",
    "died",
    "ended_otherwise",
    "explain",
    "failed_at_or_after",
    "failed_in_transfer",
    "failed_operations",
    "fell_out",
    "is_broken",
    "left_in_order",
    "raised",
    "suspicious",
]

_STATES = {
    RankState.STOPPED: "its process was stopped",
    RankState.GONE: "its process was gone without a word: killed or crashed",
    RankState.EXITED: "its process had ended",
}


def fell_out(report: RankPull) -> bool:
    """Whether the rank's program ended with an exception out of torch.distributed: it was inside an operation."""
    return report.exit is not None and report.exit.in_distributed


def died(report: RankPull) -> bool:
    """Whether the rank's process is gone without having said anything: killed or crashed."""
    return report.state is RankState.GONE and report.exit is None


def left_in_order(report: RankPull) -> bool:
    """Whether the rank's program ran to its end."""
    return report.exit is not None and report.exit.status == "exit" and report.exit.code == 0


def collectives_counted(reports: Iterable[RankPull]) -> dict[tuple[int, str, str], int]:
    """How many collectives each rank's agent counted, by rank and the group's name and description."""
    return {(report.rank, count.name, count.desc): count.collectives for report in reports for count in report.counts}


def raised(report: RankPull) -> bool:
    """Whether the rank's program ended with an exception of its own."""
    return report.exit is not None and report.exit.status == "exception" and not report.exit.in_distributed


def ended_otherwise(report: RankPull) -> bool:
    """Whether the rank ended without an exception: it ran to its end, or a signal ended it, whatever it was in."""
    return report.exit is not None and report.exit.status in {"exit", "signal"}


def failed_at_or_after(report: RankPull, group: tuple[str, str], sequence: int) -> bool:
    """Whether the rank later failed inside of this collective of the group (name, description), or a later one."""
    end = report.exit
    if end is None or not end.in_distributed or end.last_p2p:
        return False
    return end.last_group in group and end.last_sequence >= sequence


def failed_in_transfer(report: RankPull) -> bool:
    """Whether that operation was a send or receive (which gloo does not record)."""
    return report.exit is not None and report.exit.in_distributed and report.exit.last_p2p


def suspicious(report: RankPull) -> bool:
    """Whether the report alone explains why the rank did not enter an operation: it is broken, or it has ended."""
    return is_broken(report) or (report.exit is not None and report.exit.status == "exit" and not fell_out(report))


def is_broken(report: RankPull) -> bool:
    """Whether the rank's process is stopped or gone, or its program raised, and not out of torch.distributed."""
    stands = report.state in {RankState.STOPPED, RankState.GONE}
    return (stands and not fell_out(report)) or raised(report)


def failed_operations(groups: Iterable[GroupView], reports: Mapping[int, RankPull]) -> frozenset[tuple[int, int]]:
    """(rank, record id) of every operation that did not finish, whatever the record says.

    After gloo has raised, the recorder calls the operation retired. So the last operation of a rank that fell out of
    torch.distributed did not finish; nor did the same operation on peers whose last one it is, as far as gloo knows.
    """
    failed: set[tuple[int, int]] = set()
    shared: set[tuple[int, int]] = set()
    groups = list(groups)
    for rank, report in reports.items():
        if report.exit is None or not report.exit.in_distributed or report.exit.last_p2p:
            continue
        found = _last_operation(groups, rank, report.exit)
        if found is not None:
            group, operation = found
            failed.add((rank, operation.record_id))
            shared.add((id(group), operation.sequence))
    for group in groups:
        for rank, collectives in group.collectives.items():
            last = max(collectives, default=0)
            if (id(group), last) in shared and collectives[last][0].backend == "gloo":
                failed.update((rank, operation.record_id) for operation in collectives[last])
    return frozenset(failed)


def _last_operation(groups: list[GroupView], rank: int, end: RankExit) -> tuple[GroupView, Operation] | None:
    """The collective that the exit names, else the last one that the rank recorded."""
    candidates = [
        (operation.record_id, number, operation)
        for number, group in enumerate(groups)
        for operations in group.collectives.get(rank, {}).values()
        for operation in operations
        if not end.last_group or end.last_group in {group.name, group.desc}
        if not end.last_sequence or operation.sequence == end.last_sequence
    ]
    if not candidates:
        return None
    _, number, operation = max(candidates, key=lambda one: one[:2])
    return groups[number], operation


def explain(report: RankPull | None) -> str:
    """Why a rank was absent, as a clause for `why`; empty when the reports do not say."""
    if report is None:
        return ""
    end = report.exit
    if end is not None and end.status == "exception":
        return f"its program had ended with {end.exception_type or 'an exception'}"
    if end is not None and end.status == "exit":
        return f"its program had ended with exit code {end.code}"
    return _STATES.get(report.state, "")
