"""Waiting for a scheduler's turn: a wait of its own, that eats none of the drill's deadlines."""

from hangdrill.drill.session import Session
from hangdrill.launchers.protocol import QueuedJob
from hangdrill.model.errors import MachineError

__all__ = ["await_turn"]

POLL_S = 0.2


def await_turn(session: Session) -> None:
    """Wait until the job begins, and tell why it does not. MachineError after `job.queue_s`: the job is then cancelled
    with all the rest of the drill."""
    job = session.job
    if not isinstance(job, QueuedJob):
        return
    told = ""

    def probe() -> bool | None:
        nonlocal told
        why = job.waiting()
        if why and why != told:
            told = why
            session.tell("queued", "queued", {"why": why}, why)
        return True if not why or session.job_over() else None

    limit_s = session.plan.scenario.job.queue_s
    if session.waiter.until(probe, deadline_s=limit_s, poll_s=POLL_S) is None:
        raise MachineError(
            f"the job was still queued after {limit_s:g} s ({told}), and was cancelled",
            where="job.queue_s",
            next_step="wait longer, or name another partition with --sbatch=--partition=...",
        )
