"""When it is a hang: each rule with a case beside it in which it keeps silent; culprits at rank 0, middle, last."""

import pytest

from hangdrill.collector.notice import NoticeRules, RankView, find_notice, settled
from hangdrill.collector.options import DEFAULT_STALL_AFTER_S
from hangdrill.collector.traces import OperationKey, PendingOperation
from hangdrill.model.run import PullReason, RankExit, RankState

NOW_S, NOW_NS = 1000.0, 5_000_000_000_000
RULES = NoticeRules()
WORLD = 4


def pending(*, age_s, sequence=4, timeout_s=5.0, group="0"):
    return PendingOperation(
        key=OperationKey(group_name=group, p2p=False, sequence=sequence),
        group_desc="default_pg",
        name="all_reduce",
        created_ns=NOW_NS - int(age_s * 1e9),
        timeout_ms=int(timeout_s * 1000),
    )


def view(rank, operation=None, **changes):
    waiting = {} if operation is None else {"pending": (operation,), "pending_since_s": {operation.key: NOW_S - 0.1}}
    return RankView(**{"rank": rank, "progress_s": NOW_S, **waiting, **changes})


def end(rank, status="exit", code=0, **changes):
    return RankExit(rank=rank, status=status, code=code, time_ns=NOW_NS + rank, **changes)


def look(views, rules=RULES):
    return find_notice(views, rules, now_s=NOW_S, now_ns=NOW_NS)


def all_but(culprit, **changes):
    """Everybody waits in all_reduce #4, but for one."""
    others = [view(rank, pending(age_s=60)) for rank in range(WORLD) if rank != culprit]
    return [*others, view(culprit, **changes)]


@pytest.mark.parametrize("culprit", [0, 1, 3])
def test_an_operation_pending_for_most_of_its_timeout_is_a_stall(culprit):
    views = [view(rank, pending(age_s=4.1)) for rank in range(WORLD) if rank != culprit] + [view(culprit)]
    notice = look(views)
    others = ", ".join(str(rank) for rank in range(WORLD) if rank != culprit)
    assert notice.reason is PullReason.STALL
    assert notice.sentence == f"all_reduce #4 of default_pg pending for 4.1 s on ranks {others}"
    assert notice.pending == {pending(age_s=0).key}


@pytest.mark.parametrize(("age_s", "timeout_s"), [(3.9, 5.0), (100, 600), (0, 5.0)])
def test_an_operation_well_within_its_timeout_is_no_stall(age_s, timeout_s):
    assert look([view(rank, pending(age_s=age_s, timeout_s=timeout_s)) for rank in range(WORLD)]) is None


def test_the_smaller_of_the_given_limit_and_the_timeouts_share_counts():
    operation = pending(age_s=0, timeout_s=10)
    assert NoticeRules(stall_after_s=3).operation_limit_s(operation) == 3
    assert NoticeRules(stall_after_s=100).operation_limit_s(operation) == 8
    assert NoticeRules().operation_limit_s(pending(age_s=0, timeout_s=0)) == DEFAULT_STALL_AFTER_S
    assert NoticeRules(stall_after_s=7).operation_limit_s(pending(age_s=0, timeout_s=0)) == 7


def test_a_wall_clock_that_was_set_back_does_not_hide_a_stall():
    operation = pending(age_s=-3600)
    watched = {operation.key: NOW_S - 4.5}
    assert look([view(0, operation, pending_since_s=watched)]).reason is PullReason.STALL
    assert look([view(0, operation)]) is None


@pytest.mark.parametrize("rank", [0, 2, 3])
@pytest.mark.parametrize(
    ("exit_", "reason", "sentence"),
    [
        ({"status": "exception", "code": 1, "exception_type": "ValueError", "exception_message": "no"},
         PullReason.EXCEPTION, "raised ValueError: no"),
        ({"status": "signal", "code": 15}, PullReason.SIGNAL, "was ended by signal 15"),
        ({"status": "exit", "code": 3}, PullReason.EXCEPTION, "exited with 3"),
    ],
)  # fmt: skip
def test_a_bad_end_is_noticed(rank, exit_, reason, sentence):
    notice = look([view(r, exit=end(r, **exit_) if r == rank else None) for r in range(WORLD)])
    assert (notice.reason, notice.sentence, notice.needs_settling) == (reason, f"rank {rank} {sentence}", True)


def test_a_good_end_is_not_noticed():
    assert look([view(rank, exit=end(rank)) for rank in range(WORLD)]) is None


def test_the_first_bad_end_is_the_one_that_is_told():
    late = view(0, exit=RankExit(rank=0, status="exception", exception_type="Late", time_ns=2))
    first = view(1, exit=RankExit(rank=1, status="exception", exception_type="First", time_ns=1))
    assert look([late, first]).sentence.startswith("rank 1 raised First")


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_a_rank_with_an_agent_that_is_gone_unannounced_is_noticed(rank):
    views = [view(r, state=RankState.GONE if r == rank else RankState.RUNNING, has_agent=True) for r in range(WORLD)]
    notice = look(views)
    assert (notice.reason, notice.sentence) == (PullReason.GONE, f"rank {rank} is gone without announcing an exit")


def test_a_rank_that_was_killed_is_told_before_those_that_failed_because_of_it():
    failed = view(0, has_agent=True, exit=end(0, "exception", 1, exception_type="RuntimeError", in_distributed=True))
    assert look([failed, view(1, has_agent=True, state=RankState.GONE)]).reason is PullReason.GONE
    assert look([failed, view(1, has_agent=True)]).reason is PullReason.EXCEPTION


def test_a_rank_without_an_agent_may_go_unless_others_have_long_been_waiting():
    operation = pending(age_s=1.5, timeout_s=600)
    gone = view(0, state=RankState.GONE)
    assert look([gone, view(1)]) is None
    assert look([gone, view(1, operation)]) is None
    waiting = view(1, operation, pending_since_s={operation.key: NOW_S - 1.5})
    assert look([gone, waiting]).reason is PullReason.GONE


def test_a_rank_that_announced_its_exit_is_not_gone():
    assert look([view(0, state=RankState.EXITED, has_agent=True, exit=end(0))]) is None


@pytest.mark.parametrize("rank", [0, 3])
def test_torchs_own_health_check_is_believed(rank):
    views = [view(r, unhealthy=("nccl2",) if r == rank else ()) for r in range(WORLD)]
    assert look(views).sentence == f"torch's health check calls nccl2 unhealthy on rank {rank}"


@pytest.mark.parametrize("stopped", [0, 1, 3])
def test_a_stopped_rank_is_noticed_while_others_wait(stopped):
    waiting = [view(r, pending(age_s=0.1)) for r in range(WORLD) if r != stopped]
    silent = view(stopped, state=RankState.STOPPED, silent=True)
    others = ", ".join(str(rank) for rank in range(WORLD) if rank != stopped)
    assert look([*waiting, silent]).sentence == f"rank {stopped} is stopped (SIGSTOP) while ranks {others} wait"
    assert look([*waiting, view(stopped, state=RankState.STOPPED)]) is None, "it still answers"
    assert look([*waiting, view(stopped, silent=True)]) is None, "it is only slow"
    assert look([view(0), silent]) is None, "nobody waits"


def test_no_progress_anywhere_is_noticed_when_the_recorder_shows_nothing():
    rules = NoticeRules(job_timeout_s=5)
    counted = {"counts_operations": True, "operations_begun": True}
    idle = [view(rank, progress_s=NOW_S - 4.5, **counted) for rank in range(2)]
    notice = look(idle, rules)
    assert notice.sentence == "no operation begun for 4.5 s on ranks 0, 1; the recorder shows nothing pending"
    assert look([idle[0], view(1, progress_s=NOW_S - 1, **counted)], rules) is None, "one goes on"
    assert look([idle[0], view(1, progress_s=NOW_S - 4.5)], rules) is None, "one does not count"
    assert look([view(0, progress_s=NOW_S - 60, counts_operations=True)], rules) is None, "the job has not begun"
    in_operation = view(1, pending(age_s=1), progress_s=NOW_S - 4.5, **counted)
    assert look([idle[0], in_operation], rules) is None, "one is inside an operation, whose own timeout counts"
    just_exited = view(1, progress_s=NOW_S - 1, exit=end(1), **counted)
    assert look([idle[0], just_exited], rules) is None, "the others may take as long again to end"
    assert look([view(0, exit=end(0), progress_s=0.0, **counted)], rules) is None, "all have ended"


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_good_end_before_an_operation_that_others_are_in_is_noticed_at_once(left):
    waiting = [view(r, pending(age_s=0.01)) for r in range(WORLD) if r != left]
    others = ", ".join(str(rank) for rank in range(WORLD) if rank != left)
    notice = look([*waiting, view(left, exit=end(left), entered={"0": 3})])
    assert (
        notice.sentence == f"rank {left} exited with 0 before all_reduce #4 of default_pg, in which ranks {others} wait"
    )
    assert look([*waiting, view(left, exit=end(left), entered={"0": 4})]) is None, "it entered it too"
    assert look([*waiting, view(left, exit=end(left), entered={"1": 0})]) is None, "it is not a member"
    assert look([*waiting, view(left, exit=end(left))]) is None, "nobody counted"


def test_settled_means_that_everybody_who_still_runs_is_inside_an_operation():
    inside, outside = view(0, pending(age_s=0)), view(1)
    assert settled([inside, view(1, exit=end(1)), view(2, silent=True), view(3, state=RankState.GONE)])
    assert not settled([inside, outside])
