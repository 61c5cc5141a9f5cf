"""What the collector would report of the processes of a simulated run, after gloo has given up waiting.

gloo raises when the timeout is over, in every rank that waits, and its recorder then calls the operation retired: the
dumps show nothing unfinished any more, and only the reports say who fell out of what.
"""

import dataclasses

from simulator import Entry, Outcome

from hangdrill.model.run import RankExit, RankPull, RankState

__all__ = ["after_the_timeout", "reports_of"]


def reports_of(outcome: Outcome) -> tuple[RankPull, ...]:
    """One report a rank."""
    return tuple(_report(outcome, rank) for rank in range(outcome.program.world))


def after_the_timeout(outcome: Outcome) -> Outcome:
    """The run as the recorder shows it when all that was pending has failed."""
    entries = tuple(tuple(_failed(entry) for entry in mine) for mine in outcome.entries)
    return dataclasses.replace(outcome, entries=entries)


def _failed(entry: Entry) -> Entry:
    return dataclasses.replace(entry, finished=entry.created + 10_000) if entry.pending else entry


def _report(outcome: Outcome, rank: int) -> RankPull:
    pending = [entry for entry in outcome.entries[rank] if entry.pending]
    placed = {fault.rank: fault.kind for fault in outcome.faults}.get(rank)
    if rank in outcome.killed:
        return RankPull(rank=rank, state=RankState.GONE)
    if pending:
        last = pending[-1]
        end = RankExit(
            rank=rank, status="exception", code=1, exception_type="RuntimeError", in_distributed=True, time_ns=1,
            last_group=last.step.team.desc, last_sequence=last.sequence, last_p2p=last.step.p2p,
        )  # fmt: skip
        return RankPull(rank=rank, state=RankState.EXITED, exit=end)
    if placed == "hold":
        return RankPull(rank=rank, state=RankState.RUNNING, answered=True)
    return RankPull(rank=rank, state=RankState.EXITED, exit=RankExit(rank=rank, status="exit", code=0, time_ns=1))
