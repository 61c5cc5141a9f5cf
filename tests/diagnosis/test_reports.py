"""What the collector saw of the processes: operations that failed though gloo calls them over, why a rank is away."""

from typing import Any

import msgspec
import pytest
from dump_builders import dump, fell_out, report, status, world

from hangdrill.diagnosis import diagnose, sentence
from hangdrill.model.diagnosis import Basis, Diagnosis, HangKind, HangVerdict
from hangdrill.model.dump import DumpFormat, Group, GroupStatus, RankDump
from hangdrill.model.run import GroupCount, RankPull, RankState

THREE, FOUR = ("all_reduce",) * 3, ("all_reduce",) * 4
WORLD = (world(4),)


def named(diagnosis: Diagnosis) -> list[int]:
    return [culprit.rank for culprit in diagnosis.culprits]


@pytest.mark.parametrize("culprit", [0, 1, 3])
def test_an_operation_that_gloo_retired_by_failing_did_not_finish(culprit: int) -> None:
    dumps = [dump(rank, *(THREE if rank == culprit else FOUR)) for rank in range(4)]
    waiting = [rank for rank in range(4) if rank != culprit]
    reports = [fell_out(rank, last_group="default_pg", last_sequence=4) for rank in waiting]
    diagnosis = diagnose(dumps, world_size=4, reports=[*reports, report(culprit)])
    assert named(diagnosis) == [culprit]
    assert diagnosis.kind is HangKind.RANK_ABSENT
    assert sentence(diagnosis).startswith(f"rank {culprit} never entered all_reduce #4 of default_pg; ranks ")


def test_without_such_a_report_it_is_a_contradiction_and_undecided() -> None:
    """The negative control: the same dumps. Rank 1's may just as well have been taken earlier."""
    dumps = [dump(rank, *(THREE if rank == 1 else FOUR)) for rank in range(4)]
    diagnosis = diagnose(dumps, world_size=4)
    assert diagnosis.verdict is HangVerdict.UNDECIDED
    assert named(diagnosis) == []
    assert "rank 1 never entered what others finished with them" in diagnosis.notes[0]


def test_one_report_speaks_for_the_peers_whose_last_operation_it_is() -> None:
    dumps = [dump(rank, *(THREE if rank == 2 else FOUR)) for rank in range(4)]
    diagnosis = diagnose(dumps, world_size=4, reports=[fell_out(0)])
    assert named(diagnosis) == [2]
    assert diagnosis.stuck is not None
    assert diagnosis.stuck.waiting == (0, 1, 3)


def test_a_report_that_names_an_operation_nobody_recorded_changes_nothing() -> None:
    dumps = [dump(rank, *FOUR) for rank in range(2)]
    diagnosis = diagnose(dumps, world_size=2, reports=[fell_out(0, last_group="lost", last_sequence=9), report(1)])
    assert named(diagnosis) == [1]
    assert diagnosis.culprits[0].basis is Basis.INFERRED


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (report(1, RankState.STOPPED), "its process was stopped"),
        (report(1, RankState.GONE), "its process was gone without a word: killed or crashed"),
        (report(1, RankState.EXITED), "its process had ended"),
        (report(1, ended="exit"), "its program had ended with exit code 0"),
        (report(1, ended="exception", exception_type="ValueError"), "its program had ended with ValueError"),
        (report(1, ended="signal"), ""),
    ],
)
def test_the_reason_for_an_absence_is_in_why(of: RankPull, why: str) -> None:
    dumps = [dump(rank, *THREE, *(("all_reduce!",) if rank != 1 else ())) for rank in range(4)]
    diagnosis = diagnose(dumps, world_size=4, reports=[of])
    assert named(diagnosis) == [1]
    assert diagnosis.culprits[0].basis is Basis.OBSERVED
    assert diagnosis.culprits[0].why.endswith(why)
    without = diagnose([one for one in dumps if one.rank != 1], world_size=4, reports=[of])
    assert named(without) == [1]
    assert without.culprits[0].basis is Basis.INFERRED
    assert without.culprits[0].why.endswith(why)


def test_of_two_ranks_without_a_dump_the_one_that_was_killed_is_named() -> None:
    dumps = [dump(rank, *THREE, "all_reduce!") for rank in (0, 3)]
    assert named(diagnose(dumps, world_size=4)) == []
    killed = [report(1), report(2, RankState.GONE)]
    assert named(diagnose(dumps, world_size=4, reports=killed)) == [2]


def test_a_rank_that_failed_itself_is_not_inferred() -> None:
    dumps = [dump(0, *THREE, "all_reduce!")]
    assert named(diagnose(dumps, world_size=2, reports=[fell_out(1)])) == []
    assert named(diagnose(dumps, world_size=2, reports=[report(1)])) == [1]


def test_gloo_records_no_transfers_so_the_one_who_did_not_fall_is_named() -> None:
    """A pipeline: ranks 0, 2 and 3 fell out of sends and receives, of which the recorder shows nothing."""
    dumps = [dump(rank, *THREE) for rank in range(4)]
    reports = [fell_out(rank, last_p2p=True, last_sequence=7) for rank in (0, 2, 3)]
    diagnosis = diagnose(dumps, world_size=4, reports=[*reports, report(1, RankState.STOPPED)])
    assert (named(diagnosis), diagnosis.kind) == ([1], HangKind.P2P_UNMATCHED)
    assert diagnosis.culprits[0].basis is Basis.INFERRED
    assert diagnosis.culprits[0].why.endswith("its process was stopped")
    assert sentence(diagnosis) == "rank 1 held up the others"
    restarted = [fell_out(rank) for rank in (0, 2, 3)]  # in init_process_group: no operation was ever entered
    assert named(diagnose([dump(rank) for rank in range(4)], world_size=4, reports=restarted)) == []
    left = [*reports[:2], report(1), report(3, ended="exit")]  # who left in order may not have been needed
    assert named(diagnose(dumps, world_size=4, reports=left)) == []
    two = diagnose(dumps, world_size=4, reports=[*reports[:2], report(1), report(3)])
    assert (named(two), two.verdict) == ([], HangVerdict.UNDECIDED)
    told = diagnose(dumps, reports=[*reports, report(1)])
    assert named(told) == [1]


def counted(rank: int, collectives: int, p2p: int = 0, state: RankState = RankState.RUNNING, **end: Any) -> RankPull:
    """A report with the agent's own count of the default group."""
    count = GroupCount(name="0", desc="default_pg", ranks=(0, 1, 2, 3), backend_class="ProcessGroupGloo",
                       collectives=collectives, p2p=p2p)  # fmt: skip
    return msgspec.structs.replace(report(rank, state, **end), counts=(count,))


def test_a_rank_that_may_be_inside_a_transfer_that_gloo_hides_is_not_named() -> None:
    """Ranks 1 and 2 are absent from the all_reduce. Rank 2 fell out of a receive; rank 1 may be inside of one too,
    unless its agent counted nothing since the last operation that is recorded."""
    dumps = [dump(rank, *THREE, *(("all_reduce!",) if rank in {0, 3} else ())) for rank in range(4)]
    fallen = fell_out(2, last_p2p=True, last_sequence=1)
    assert named(diagnose(dumps, world_size=4, reports=[fallen, report(1)])) == []
    assert named(diagnose(dumps, world_size=4, reports=[fallen, counted(1, 3, p2p=1)])) == []
    assert named(diagnose(dumps, world_size=4, reports=[fallen, counted(1, 3)])) == [1]
    assert named(diagnose(dumps, world_size=4, reports=[fallen, counted(1, 3, 1, RankState.STOPPED)])) == [1]


def test_the_agents_count_stands_in_for_what_an_old_trace_does_not_say() -> None:
    """The trace of a rank that holds its GIL is from before; the count, from the moment of the pull."""
    old = trace(1, status("0", 1))
    waiting = [dump(rank, *THREE, "all_reduce!") for rank in (0, 2, 3)]
    diagnosis = diagnose([*waiting, old], world_size=4, reports=[counted(1, 3)])
    assert (named(diagnosis), diagnosis.culprits[0].basis) == ([1], Basis.OBSERVED)
    entered = diagnose([*waiting, old], world_size=4, reports=[counted(1, 4)])
    assert named(entered) == []


def test_a_rank_that_was_let_go_and_went_on_is_looked_at_as_it_was() -> None:
    """Stopped before the fourth, released by the teardown, dumped at its end with everything done."""
    waiting = [dump(rank, *THREE, "all_reduce!") for rank in (0, 2, 3)]
    later = dump(1, *FOUR, *FOUR)
    diagnosis = diagnose([*waiting, later], world_size=4, reports=[counted(1, 3, state=RankState.STOPPED)])
    assert named(diagnosis) == [1]
    assert diagnosis.culprits[0].why.endswith("#3; its process was stopped")
    assert named(diagnose([*waiting, later], world_size=4)) == []


def test_a_rank_that_was_let_go_and_failed_then_was_absent_all_the_same() -> None:
    waiting = [dump(rank, *THREE, "all_reduce!") for rank in (0, 2, 3)]
    late = fell_out(1, last_group="default_pg", last_sequence=4)
    assert named(diagnose([*waiting, trace(1, status("0", 3))], world_size=4, reports=[late])) == [1]


@pytest.mark.parametrize("culprit", [0, 2, 3])
def test_a_rank_that_died_inside_of_an_operation_is_named(culprit: int) -> None:
    """Its agent counted the fourth, and its process is gone: an abort inside of gloo."""
    waiting = [dump(rank, *FOUR) for rank in range(4) if rank != culprit]
    reports = [fell_out(rank, last_group="default_pg", last_sequence=4) for rank in range(4) if rank != culprit]
    diagnosis = diagnose(waiting, world_size=4, reports=[*reports, counted(culprit, 4, state=RankState.GONE)])
    assert [(one.rank, one.basis) for one in diagnosis.culprits] == [(culprit, Basis.INFERRED)]
    assert "died inside of it" in diagnosis.culprits[0].why
    alive = diagnose(waiting, world_size=4, reports=[*reports, counted(culprit, 4)])
    assert named(alive) == []


def test_a_silent_recorder_leaves_it_to_the_processes() -> None:
    """A pipeline on gloo, before its first collective: nobody recorded anything, and one rank ended."""
    dumps = [dump(rank, groups=(Group(name="", desc="", ranks=(0, 1, 2)),)) for rank in range(3)]
    running = [counted(rank, 0, p2p=3) for rank in (0, 2)]
    ended = counted(1, 0, 2, ended="exception", exception_type="ValueError")
    diagnosis = diagnose(dumps, world_size=3, reports=[*running, ended])
    assert (named(diagnosis), diagnosis.kind) == ([1], HangKind.P2P_UNMATCHED)
    assert "ended with ValueError" in diagnosis.culprits[0].why
    unknown = diagnose(dumps, world_size=3, reports=[*running, counted(1, 0, 2)])
    assert (unknown.verdict, named(unknown)) == (HangVerdict.UNDECIDED, [])
    left = [counted(rank, 0, 3, RankState.EXITED, ended="exit") for rank in range(3)]
    assert diagnose(dumps, world_size=3, reports=left).verdict is HangVerdict.NO_HANG


def test_a_rank_that_the_teardown_ended_may_have_been_in_anything() -> None:
    dumps = [dump(rank, *THREE) for rank in range(2)]
    reports = [fell_out(0, last_p2p=True, last_sequence=1), report(1, ended="signal")]
    assert named(diagnose(dumps, world_size=2, reports=reports)) == []


def test_nothing_pending_and_everybody_left_in_order_is_no_hang() -> None:
    dumps = [dump(rank, *FOUR) for rank in range(4)]
    reports = [report(rank, RankState.EXITED, ended="exit") for rank in range(4)]
    diagnosis = diagnose(dumps, world_size=4, reports=reports)
    assert diagnosis.verdict is HangVerdict.NO_HANG
    assert sentence(diagnosis) == "no hang: no operation is pending"


def test_a_process_that_is_stopped_makes_no_hang_uncertain() -> None:
    dumps = [dump(rank, *FOUR) for rank in range(4)]
    diagnosis = diagnose(dumps, world_size=4, reports=[report(3, RankState.STOPPED)])
    assert diagnosis.verdict is HangVerdict.UNDECIDED
    assert "the process of rank 3 was stopped or gone" in diagnosis.notes


def trace(rank: int, *statuses: GroupStatus, groups: tuple[Group, ...] = ()) -> RankDump:
    """What the control plane says of a rank that is inside of nothing."""
    return dump(rank, status=tuple(statuses), groups=groups, only_active=True, format=DumpFormat.JSON)


@pytest.mark.parametrize("backend", ["gloo", "nccl2", "nccl"])
@pytest.mark.parametrize("culprit", [0, 2, 3])
def test_pg_status_alone_tells_that_a_rank_has_not_entered(backend: str, culprit: int) -> None:
    base = -1 if backend == "nccl2" else 0
    waiting = [dump(rank, *THREE, "all_reduce!", backend=backend, groups=WORLD) for rank in range(4) if rank != culprit]
    diagnosis = diagnose([*waiting, trace(culprit, status("0", 3 + base))], world_size=4)
    assert named(diagnosis) == [culprit]
    assert diagnosis.culprits[0].basis is Basis.OBSERVED
    assert "its last operation there is #3" in diagnosis.culprits[0].why
    entered = diagnose([*waiting, trace(culprit, status("0", 4 + base))], world_size=4)
    assert named(entered) == []


def test_pg_status_that_may_count_transfers_proves_nothing() -> None:
    waiting = [dump(rank, "send>1" if rank == 0 else "recv<0", "all_reduce!", backend="nccl", groups=WORLD)
               for rank in range(2)]  # fmt: skip
    diagnosis = diagnose([*waiting, trace(2, status("0", 1)), dump(3, "all_reduce!", groups=WORLD, backend="nccl")],
                         world_size=4)  # fmt: skip
    assert (diagnosis.verdict, named(diagnosis)) == (HangVerdict.UNDECIDED, [])


SUB = Group(name="1", desc="mesh_tp", ranks=(1, 2))


@pytest.mark.parametrize(
    ("statuses", "groups", "basis"),
    [
        ((status("0", 3), status("1", 1)), (*WORLD, SUB), Basis.OBSERVED),  # by the order in which groups were made
        ((status("0", 3), status("1", 1)), (), Basis.OBSERVED),  # as with the peer, who has the same groups
        ((status("0", 3), status("7", 1)), (), Basis.INFERRED),  # other ids than the peer's: nobody can say
        ((status("0", 3), status("x", 1)), (*WORLD, SUB), Basis.INFERRED),
        ((status("0", 3),), (*WORLD, SUB), Basis.INFERRED),
        ((status("0", 3), status("1", 1)), (SUB, Group(name="5", desc="own", ranks=(1,))), Basis.INFERRED),
    ],
)
def test_pg_ids_of_another_process_are_only_matched_where_that_is_sure(
    statuses: tuple[GroupStatus, ...], groups: tuple[Group, ...], basis: Basis
) -> None:
    peers = [dump(2, *THREE, "mesh_tp:all_reduce", "mesh_tp:all_reduce!", groups=(*WORLD, SUB), backend="nccl",
                  status=(status("0", 3), status("1", 2, 1)))]  # fmt: skip
    others = [dump(rank, *THREE, "all_reduce!", groups=WORLD, backend="nccl") for rank in (0, 3)]
    diagnosis = diagnose([*peers, *others, trace(1, *statuses, groups=groups)], world_size=4)
    assert 1 in named(diagnosis) or diagnosis.verdict is HangVerdict.UNDECIDED
    sub = [culprit for culprit in diagnosis.culprits if "mesh_tp" in culprit.why]
    assert bool(sub) <= (basis is Basis.OBSERVED)


def test_where_nothing_was_recorded_the_exception_comes_first() -> None:
    """The control: the same dumps of ranks that raised nothing."""
    dumps = [dump(rank) for rank in range(2)]
    end = report(0, ended="exception", exception_type="ModuleNotFoundError", exception_message="No module 'x'\nmore")
    raised = diagnose(dumps, world_size=2, reports=[end, report(1)])
    assert raised.verdict is HangVerdict.UNDECIDED
    assert raised.notes[0] == "rank 0 raised ModuleNotFoundError: No module 'x' before anything was recorded"
    assert not any("raised" in note for note in diagnose(dumps, world_size=2, reports=[report(0), report(1)]).notes)
