"""What to look at next, by the kind of hang and by what is known of the culprits."""

from collections.abc import Iterable, Iterator, Mapping

from hangdrill.checks.words import ranks_text
from hangdrill.model.diagnosis import Diagnosis, HangKind, HangVerdict
from hangdrill.model.run import RankPull, RankState
from hangdrill.report.story.places import place_of
from hangdrill.report.story.ranks import Roles
from hangdrill.report.story.slices import RankSlice
from hangdrill.report.story.stuck import operation_name

__all__ = ["next_steps"]

SHOWN_PIDS = 8
BY_KIND = {
    HangKind.OP_MISMATCH: "the branch of the code that makes ranks call different operations: compare their lines",
    HangKind.SHAPE_MISMATCH: "what the size of this tensor depends on: the last batch, padding, the number of experts",
    HangKind.DTYPE_MISMATCH: "what the dtype of this tensor depends on: autocast, a checkpoint, a rank's own settings",
    HangKind.P2P_UNMATCHED: "the schedule of sends and receives: who should have posted the other side, and when",
    HangKind.ORDER_INVERSION: "the order in which each of these ranks calls the groups: it must be the same on all",
}


def next_steps(
    diagnosis: Diagnosis, roles: Roles, slices: Mapping[int, RankSlice], reports: Iterable[RankPull]
) -> tuple[str, ...]:
    """Where a person looks now, the most useful first. Never empty."""
    stopped = {one.rank: one.pid for one in reports if one.state is RankState.STOPPED and one.rank in roles.culprits}
    return tuple(_steps(diagnosis, roles, slices, stopped))


def _steps(
    diagnosis: Diagnosis, roles: Roles, slices: Mapping[int, RankSlice], stopped: Mapping[int, int | None]
) -> Iterator[str]:
    """stopped: the pid, where it is known, of each culprit whose process was stopped."""
    if diagnosis.verdict is HangVerdict.NO_HANG:
        yield "the stacks and the data loader, if the job does hang: nothing is pending in torch.distributed"
        return
    if stopped:
        yield _who_stopped(stopped)
    inferred = roles.inferred - stopped.keys()
    if roles.culprits:
        yield f"the stacks and the log of {ranks_text(roles.culprits)}, and the host"
    if inferred:
        yield f"whether the process of {ranks_text(inferred)} lived: exit code, the kernel's log, the host's health"
    yield from _last_seen(roles, slices)
    if diagnosis.kind in BY_KIND:
        yield BY_KIND[diagnosis.kind]
    missing = set(diagnosis.ranks.missing) - roles.culprits
    if missing:
        yield f"the logs of {ranks_text(missing)}, whose dumps are missing"
    if not roles.culprits and not missing and diagnosis.kind not in BY_KIND:
        yield "the GPUs, the network and the stacks of all ranks: the recorder has no more to say"


def _who_stopped(stopped: Mapping[int, int | None]) -> str:
    pids = " ".join(str(stopped[rank] or "PID") for rank in sorted(stopped)[:SHOWN_PIDS])
    pids += " ..." if len(stopped) > SHOWN_PIDS else ""
    whose, it = ("its host", "it") if len(stopped) == 1 else ("their hosts", "them")
    return (
        f"who stopped {ranks_text(stopped)} (state T): a SIGSTOP, or a debugger? "
        f"on {whose}, `kill -CONT {pids}` resumes {it}"
    )


def _last_seen(roles: Roles, slices: Mapping[int, RankSlice]) -> Iterator[str]:
    """The code that the first culprit ran after the last operation it finished."""
    for rank in sorted(roles.culprits & roles.absent - roles.inferred):
        one = slices.get(rank)
        last = one.last_there if one is not None else None
        place = place_of(last.frames) if last is not None else None
        if last is not None and place is not None and place.text:
            yield f"what rank {rank} does after {place.text}, where it called {operation_name(last)}"
            return
