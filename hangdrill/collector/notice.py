"""When is it a hang? Pure rules over what is known of all ranks at one moment.

They err on the side of looking: a pull costs milliseconds, and evidence that was pulled before an operation gave up
is better than any that was pulled after (gloo then marks the failed operation as finished).
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from hangdrill.collector.options import DEFAULT_STALL_AFTER_S
from hangdrill.collector.traces import OperationKey, PendingOperation
from hangdrill.model.run import PullReason, RankExit, RankState

__all__ = ["WAITS_LONG_S", "Notice", "NoticeRules", "RankView", "find_notice", "settled"]

_TIMEOUT_SHARE = 0.8
WAITS_LONG_S = 1.0
"""A rank without an agent ends well within this after its last operation; one that crashes may have waited longer."""


class RankView(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one rank. Times are monotonic seconds of the collector unless the name says otherwise."""

    rank: int
    state: RankState = RankState.RUNNING
    has_agent: bool = False
    silent: bool = False
    """It did not answer the last looks."""
    exit: RankExit | None = None
    pending: tuple[PendingOperation, ...] = ()
    pending_since_s: Mapping[OperationKey, float] = {}
    unhealthy: tuple[str, ...] = ()
    ahead_ns: int = 0
    """By how much its clock, which gave its operations their times, is ahead of ours."""
    operations_begun: bool = False
    counts_operations: bool = False
    progress_s: float = 0.0
    entered: Mapping[str, int] = {}
    """Of a rank that ended well: how many collectives it entered in each group, by the group's name."""

    @property
    def running(self) -> bool:
        """Whether its program still runs: the process is there and no end was announced."""
        return self.exit is None and self.state in (RankState.RUNNING, RankState.STOPPED)


class NoticeRules(msgspec.Struct, frozen=True, kw_only=True):
    """The limits. stall_after_s None: 0.8 x the timeout of the operation, or of the job."""

    stall_after_s: float | None = None
    job_timeout_s: float | None = None

    def operation_limit_s(self, operation: PendingOperation) -> float:
        """How long this operation may be pending."""
        return self._smaller(operation.timeout_ms / 1000 if operation.timeout_ms > 0 else None)

    @property
    def progress_limit_s(self) -> float:
        """How long a job may do no operation at all."""
        return self._smaller(self.job_timeout_s)

    def _smaller(self, timeout_s: float | None) -> float:
        limits = [
            s for s in (self.stall_after_s, None if timeout_s is None else _TIMEOUT_SHARE * timeout_s) if s is not None
        ]
        return min(limits, default=DEFAULT_STALL_AFTER_S)


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A reason to pull. sentence as the manifest keeps it."""

    reason: PullReason
    sentence: str
    needs_settling: bool = False
    """One rank is out and the others may be about to get stuck on it: give them a moment, their dumps will say more."""
    pending: frozenset[OperationKey] = frozenset()
    gives_up_s: float = math.inf
    """When the first of them times out: what its rank does after that is no recovery."""


def find_notice(views: Sequence[RankView], rules: NoticeRules, *, now_s: float, now_ns: int) -> Notice | None:
    """The first rule that holds, from the surest to the vaguest."""
    return (
        _gone(views, now_s)
        or _bad_end(views)
        or _left_behind(views)
        or _unhealthy(views)
        or _stalled(views, rules, now_s, now_ns)
        or _stopped(views)
        or _no_progress(views, rules, now_s)
    )


def settled(views: Sequence[RankView]) -> bool:
    """Whether every rank that still runs is inside an operation, so that waiting longer would show no more."""
    return all(view.pending or view.silent for view in views if view.running)


def _bad_end(views: Sequence[RankView]) -> Notice | None:
    ended = [(view, view.exit) for view in views if view.exit is not None]
    bad = [(view, end) for view, end in ended if end.status != "exit" or end.code != 0]
    if not bad:
        return None
    first, end = min(bad, key=lambda pair: pair[1].time_ns - pair[0].ahead_ns)
    rank = first.rank
    match end.status:
        case "signal":
            return Notice(
                reason=PullReason.SIGNAL, sentence=f"rank {rank} was ended by signal {end.code}", needs_settling=True
            )
        case "exception":
            text = " ".join(f"rank {rank} raised {end.exception_type}: {end.exception_message}".split())[:300]
        case _:
            text = f"rank {rank} exited with {end.code}"
    return Notice(reason=PullReason.EXCEPTION, sentence=text, needs_settling=True)


def _gone(views: Sequence[RankView], now_s: float) -> Notice | None:
    """Without an agent a rank may end well unannounced: then only an operation that others wait in makes it a hang."""
    gone = [view for view in views if view.state is RankState.GONE]
    if not gone:
        return None
    if not any(view.has_agent for view in gone) and not any(_waits_long(view, now_s) for view in views):
        return None
    verb = "is" if len(gone) == 1 else "are"
    return Notice(
        reason=PullReason.GONE, sentence=f"{_ranks(gone)} {verb} gone without announcing an exit", needs_settling=True
    )


def _waits_long(view: RankView, now_s: float) -> bool:
    return view.running and any(now_s - since_s >= WAITS_LONG_S for since_s in view.pending_since_s.values())


def _left_behind(views: Sequence[RankView]) -> Notice | None:
    """A rank that ended well, without an operation that the others are in: they wait for nobody."""
    for left in (view for view in views if view.exit is not None):
        waiting = [view for view in views if view.running and any(_never_entered(left, op) for op in view.pending)]
        if waiting:
            title = next(op.title for op in waiting[0].pending if _never_entered(left, op))
            return _of_operations(
                waiting,
                f"rank {left.rank} exited with 0 before {title}, in which {_ranks(waiting)} {_verb(waiting, 'wait')}",
            )
    return None


def _never_entered(left: RankView, operation: PendingOperation) -> bool:
    count = left.entered.get(operation.key.group_name)
    return count is not None and not operation.key.p2p and count < operation.key.sequence


def _unhealthy(views: Sequence[RankView]) -> Notice | None:
    sick = [view for view in views if view.running and view.unhealthy]
    if not sick:
        return None
    backends = ", ".join(sorted({backend for view in sick for backend in view.unhealthy}))
    return _of_operations(sick, f"torch's health check calls {backends} unhealthy on {_ranks(sick)}")


def _stalled(views: Sequence[RankView], rules: NoticeRules, now_s: float, now_ns: int) -> Notice | None:
    waiting: dict[OperationKey, list[tuple[RankView, PendingOperation, float]]] = {}
    for view in views:
        for operation in view.pending if view.running else ():
            age_s = _age_s(operation, view, now_s, now_ns)
            waiting.setdefault(operation.key, []).append((view, operation, age_s))
    late = {
        key: group for key, group in waiting.items() if any(age >= rules.operation_limit_s(op) for _, op, age in group)
    }
    if not late:
        return None
    oldest = max(late.values(), key=lambda group: max(age for _, _, age in group))
    age_s = max(age for _, _, age in oldest)
    title = oldest[0][1].title
    return _of_operations(
        [view for group in late.values() for view, _, _ in group],
        f"{title} pending for {age_s:.1f} s on {_ranks([view for view, _, _ in oldest])}",
    )


def _stopped(views: Sequence[RankView]) -> Notice | None:
    stopped = [view for view in views if view.running and view.state is RankState.STOPPED and view.silent]
    waiting = [view for view in views if view.running and view.pending and view not in stopped]
    if not stopped or not waiting:
        return None
    verb = "is" if len(stopped) == 1 else "are"
    return _of_operations(
        waiting, f"{_ranks(stopped)} {verb} stopped (SIGSTOP) while {_ranks(waiting)} {_verb(waiting, 'wait')}"
    )


def _no_progress(views: Sequence[RankView], rules: NoticeRules, now_s: float) -> Notice | None:
    """Point-to-point on gloo is not recorded, and neither is what is no operation at all: only the agents' counts tell.

    Before the first operation of the job there is nothing to go by: starting may take long.
    """
    running = [view for view in views if view.running]
    if not running or not all(view.counts_operations for view in running) or any(view.pending for view in running):
        return None
    if not any(view.operations_begun for view in running):
        return None
    idle_s = now_s - max(view.progress_s for view in views)
    if idle_s < rules.progress_limit_s:
        return None
    text = f"no operation begun for {idle_s:.1f} s on {_ranks(running)}; the recorder shows nothing pending"
    return Notice(reason=PullReason.STALL, sentence=text)


def _of_operations(views: Sequence[RankView], sentence: str) -> Notice:
    stuck = [(view, operation) for view in views for operation in view.pending]
    ends = [
        view.pending_since_s[operation.key] + operation.timeout_ms / 1000
        for view, operation in stuck
        if operation.timeout_ms > 0 and operation.key in view.pending_since_s
    ]
    return Notice(
        reason=PullReason.STALL,
        sentence=sentence,
        pending=frozenset(operation.key for _, operation in stuck),
        gives_up_s=min(ends, default=math.inf),
    )


def _age_s(operation: PendingOperation, view: RankView, now_s: float, now_ns: int) -> float:
    """By the rank's own time of creation; by our own watching when the wall clock was set back meanwhile."""
    by_wall_s = (now_ns - (operation.created_ns - view.ahead_ns)) / 1e9
    by_watching_s = now_s - view.pending_since_s.get(operation.key, now_s)
    return max(by_wall_s, by_watching_s)


def _verb(views: Sequence[RankView], plural: str) -> str:
    return f"{plural}s" if len({view.rank for view in views}) == 1 else plural


def _ranks(views: Sequence[RankView]) -> str:
    ranks = sorted({view.rank for view in views})
    shown = ", ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
