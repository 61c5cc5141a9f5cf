"""Single rules of the diagnosis, each with the case in which it must not apply."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from dump_builders import SECOND_NS, START_NS, dump, history, report, status, world

from hangdrill.diagnosis import diagnose, sentence
from hangdrill.diagnosis.words import name_ranks
from hangdrill.model.diagnosis import Basis, Diagnosis, HangKind, HangVerdict, UnreadableDump
from hangdrill.model.dump import Group, RankDump
from hangdrill.model.run import RankState

WORLD = (world(3),)
TP = Group(name="1", desc="mesh_tp", ranks=(0, 1))


def named(diagnosis: Diagnosis) -> list[int]:
    return [culprit.rank for culprit in diagnosis.culprits]


def ask(*dumps: RankDump, size: int | None = 3, **more: Any) -> Diagnosis:
    return diagnose(dumps, world_size=size, **more)


def hung(culprit: int = 1, size: int = 3, **how: Any) -> list[RankDump]:
    """Everybody but the culprit is inside of the second all_reduce."""
    return [dump(rank, "all_reduce", *(() if rank == culprit else ("all_reduce!",)), **how) for rank in range(size)]


# Several dumps of one rank


def test_an_operation_that_any_dump_of_a_rank_saw_finished_is_finished() -> None:
    early, late = dump(0, "all_reduce", "all_reduce!"), dump(0, "all_reduce", "all_reduce", path="late")
    other = dump(1, "all_reduce", "all_reduce")
    for dumps in ([early, late, other], [late, other, early]):
        assert ask(*dumps, size=2).verdict is HangVerdict.NO_HANG


def test_a_trace_that_is_newer_than_the_dump_is_not_dropped() -> None:
    """The dump says that rank 1 did not enter; the trace, taken later, that it did."""
    newer = dump(1, "all_reduce", "all_reduce!", path="trace", only_active=True)
    assert named(ask(*hung())) == [1]
    assert ask(*hung(), newer).kind is HangKind.ALL_JOINED


def test_dumps_that_cannot_be_of_one_process_are_not_believed_and_listed() -> None:
    other = msgspec.structs.replace(dump(1, "broadcast", "all_reduce", "all_reduce!"), path="fr_1.old")
    diagnosis = ask(*hung(), other)
    assert named(diagnosis) == []
    assert diagnosis.ranks.duplicate == (1,)
    assert any("neither is believed" in note for note in diagnosis.notes)


def test_a_moment_that_differs_makes_two_processes_too() -> None:
    shifted = dump(1, "all_reduce", created_ns=START_NS - 7 * SECOND_NS)
    assert ask(*hung(), shifted).ranks.duplicate == (1,)


# Lateness and staleness


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_a_rank_that_came_when_the_timeout_was_over_is_the_one_awaited(culprit: int) -> None:
    """Released by the teardown, or awake again: it enters what the others have given up."""
    dumps = hung(culprit)
    entered = history("all_reduce", "all_reduce!", rank=culprit)
    late = msgspec.structs.replace(entered[1], created_ns=entered[1].created_ns + 6 * SECOND_NS)
    dumps[culprit] = msgspec.structs.replace(dumps[culprit], operations=(entered[0], late))
    diagnosis = ask(*dumps)
    assert named(diagnosis) == [culprit]
    assert "6.0 s after the first, when the timeout was over" in diagnosis.culprits[0].why
    assert diagnosis.stuck is not None
    assert diagnosis.stuck.absent == (culprit,)


def test_a_rank_that_came_within_the_timeout_joined() -> None:
    dumps = hung()
    entered = history("all_reduce", "all_reduce!", rank=1)
    slow = msgspec.structs.replace(entered[1], created_ns=entered[1].created_ns + 4 * SECOND_NS)
    dumps[1] = msgspec.structs.replace(dumps[1], operations=(entered[0], slow))
    assert ask(*dumps).kind is HangKind.ALL_JOINED


def moved(one: RankDump, seconds: float, *, since: int) -> RankDump:
    """The dump with the times of its operations from number `since` on moved."""
    operations = [msgspec.structs.replace(o, created_ns=o.created_ns + int(seconds * SECOND_NS) * (i >= since))
                  for i, o in enumerate(one.operations)]  # fmt: skip
    return msgspec.structs.replace(one, operations=operations)


def test_a_clock_that_is_ahead_makes_nobody_late() -> None:
    dumps = [dump(rank, "all_reduce", "all_reduce!") for rank in range(3)]
    assert ask(dumps[0], dumps[1], moved(dumps[2], 20, since=0)).kind is HangKind.ALL_JOINED
    assert named(ask(dumps[0], dumps[1], moved(dumps[2], 20, since=1))) == [2]


def test_without_an_earlier_operation_nobody_can_say_who_is_late() -> None:
    dumps = [dump(rank, "all_reduce!") for rank in range(3)]
    assert ask(dumps[0], dumps[1], moved(dumps[2], 20, since=0)).kind is HangKind.ALL_JOINED


def test_when_most_came_late_nobody_is_late() -> None:
    dumps = [dump(rank, "all_reduce", "all_reduce!") for rank in range(3)]
    assert ask(dumps[0], *(moved(one, 20, since=1) for one in dumps[1:])).kind is HangKind.ALL_JOINED


@pytest.mark.parametrize("rank", [0, 2])
def test_a_file_of_an_earlier_job_is_found_by_the_times_inside_it(rank: int) -> None:
    dumps = hung()
    day_ns = 86_400 * SECOND_NS
    yesterday = [msgspec.structs.replace(one, created_ns=one.created_ns - day_ns)
                 for one in history("all_reduce", "all_reduce", "all_reduce", rank=rank)]  # fmt: skip
    dumps[rank] = msgspec.structs.replace(dumps[rank], operations=yesterday)
    diagnosis = ask(*dumps)
    assert diagnosis.ranks.stale == (rank,)
    assert rank in diagnosis.ranks.missing
    assert named(diagnosis) == [1]
    assert any("of an earlier job" in note for note in diagnosis.notes)


def test_a_file_of_an_earlier_job_is_not_taken_for_progress() -> None:
    """Yesterday rank 1 finished what rank 0 hangs in today; they share that one operation only."""
    old = moved(dump(1, "all_reduce"), -60, since=0)
    diagnosis = ask(dump(0, "all_reduce!"), old, size=2)
    assert diagnosis.ranks.stale == (1,)
    assert [(one.rank, one.basis) for one in diagnosis.culprits] == [(1, Basis.INFERRED)]
    fresh = moved(dump(1, "all_reduce"), -20, since=0)
    assert ask(dump(0, "all_reduce!"), fresh, size=2).ranks.stale == ()


def test_stale_ranks_that_the_caller_knows_are_not_looked_at() -> None:
    diagnosis = ask(*hung(), stale=[1])
    assert diagnosis.ranks.stale == (1,)
    assert [(one.rank, one.basis) for one in diagnosis.culprits] == [(1, Basis.INFERRED)]


# Who is there


def test_no_dump_at_all_is_undecided() -> None:
    diagnosis = ask()
    assert diagnosis.verdict is HangVerdict.UNDECIDED
    assert diagnosis.ranks.missing == (0, 1, 2)
    assert "no dump could be read" in sentence(diagnosis)


def test_an_unreadable_dump_is_passed_on_and_its_rank_unknown() -> None:
    """Nor is the rank inferred: it had written something. Without the file it is."""
    cut = UnreadableDump(rank=1, file="fr_1", error="cut", salvaged_entries=0)
    nobody = UnreadableDump(rank=None, file="x", error="what")
    diagnosis = ask(*(one for one in hung() if one.rank != 1), unreadable=[cut, nobody])
    assert diagnosis.ranks.unreadable == (nobody, cut)
    assert (diagnosis.verdict, diagnosis.culprits) == (HangVerdict.UNDECIDED, ())
    without = ask(*(one for one in hung() if one.rank != 1), unreadable=[nobody])
    assert [(one.rank, one.basis) for one in without.culprits] == [(1, Basis.INFERRED)]


def test_a_salvaged_dump_ends_where_it_was_cut_so_nothing_is_said_of_what_follows() -> None:
    """Nor is its rank inferred: it wrote a dump, so it may have been waiting itself."""
    cut = dump(1, "all_reduce", salvaged=True, cut_at_byte=100)
    others = [one for one in hung() if one.rank != 1]
    assert named(ask(*others, cut)) == []
    counted = msgspec.structs.replace(cut, status=(status("0", 1),))
    assert ask(*others, counted).culprits[0].basis is Basis.OBSERVED


def test_an_empty_recorder_that_knows_its_groups_has_entered_nothing() -> None:
    waiting = [dump(rank, "all_reduce!", groups=WORLD) for rank in (0, 2)]
    diagnosis = ask(*waiting, dump(1, groups=WORLD))
    assert [(one.rank, one.basis) for one in diagnosis.culprits] == [(1, Basis.OBSERVED)]
    assert "nor any other operation of default_pg" in diagnosis.culprits[0].why
    assert diagnosis.ranks.empty == (1,)


def test_an_empty_recorder_that_knows_no_group_may_be_of_another_backend() -> None:
    diagnosis = ask(*(one for one in hung() if one.rank != 1), dump(1))
    assert [(one.rank, one.basis) for one in diagnosis.culprits] == [(1, Basis.INFERRED)]
    assert "its dump is empty" in diagnosis.culprits[0].why
    assert any("empty while others are not" in note for note in diagnosis.notes)


def test_only_empty_dumps_are_no_proof_of_health() -> None:
    diagnosis = ask(dump(0), dump(1), dump(2))
    assert diagnosis.verdict is HangVerdict.UNDECIDED
    assert any("all dumps are empty" in note for note in diagnosis.notes)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_nothing_pending_with_a_dump_lost_is_not_called_health(lost: int) -> None:
    dumps = [dump(rank, "all_reduce") for rank in range(3)]
    assert ask(*dumps).verdict is HangVerdict.NO_HANG
    diagnosis = ask(*(one for one in dumps if one.rank != lost))
    assert diagnosis.verdict is HangVerdict.UNDECIDED
    assert f"rank {lost} left no dump" in sentence(diagnosis)


def test_nobody_says_how_many_ranks_there_were() -> None:
    assert ask(dump(0, "all_reduce"), size=None).verdict is HangVerdict.UNDECIDED
    groups = (world(2),)
    assert ask(dump(0, "all_reduce"), dump(1, "all_reduce"), size=None, launch_groups=groups).ranks.expected == 2


def test_only_active_operations_and_none_of_them_is_no_proof_of_health() -> None:
    dumps = [dump(rank, only_active=True, status=(status("0", 4),)) for rank in range(3)]
    assert ask(*dumps).verdict is HangVerdict.UNDECIDED


# Groups


def test_ranks_wait_over_a_small_group_for_the_root() -> None:
    """Rank 2 waits in the default group for 1, which waits in mesh_tp for 0."""
    groups = (world(3), TP)
    dumps = [dump(0, "all_reduce"), dump(1, "all_reduce", "mesh_tp:all_reduce!"), dump(2, "all_reduce", "all_reduce!")]
    diagnosis = ask(*dumps, launch_groups=groups)
    assert named(diagnosis) == [0]


def test_a_group_of_equal_name_and_other_members_is_another_group() -> None:
    two = Group(name="1", desc="mesh_tp", ranks=(2, 3))
    dumps = [
        dump(0, "mesh_tp:all_reduce", groups=(TP,)),
        dump(1, "mesh_tp:all_reduce", groups=(TP,)),
        dump(2, "mesh_tp:all_reduce", "mesh_tp:all_reduce!", groups=(two,)),
        dump(3, "mesh_tp:all_reduce", groups=(two,)),
    ]
    diagnosis = ask(*dumps, size=4)
    assert named(diagnosis) == [3]
    assert diagnosis.stuck is not None
    assert diagnosis.stuck.group.ranks == (2, 3)


def test_in_a_group_of_unknown_members_nobody_is_named() -> None:
    dumps = [dump(0, "all_reduce", "mesh_tp:all_reduce!"), dump(1, "all_reduce"), dump(2, "all_reduce")]
    diagnosis = ask(*dumps)
    assert (diagnosis.verdict, named(diagnosis)) == (HangVerdict.UNDECIDED, [])
    assert "rank 0 is inside all_reduce #1 of mesh_tp, a group whose members no dump names" in diagnosis.notes
    assert "cannot tell whether there was a hang" in sentence(diagnosis)


def test_a_peer_s_config_names_the_members_for_a_rank_that_has_none() -> None:
    one = dump(1, "all_reduce", groups=(TP,), status=(status("0", 1),))
    dumps = [dump(0, "all_reduce", "mesh_tp:all_reduce!"), one, dump(2, "all_reduce")]
    assert named(ask(*dumps)) == [1]


def test_the_default_group_is_whoever_was_seen_or_mentioned() -> None:
    """gloo's config has one entry without a name."""
    nameless = Group(name="", desc="", ranks=(0, 1, 2))
    dumps = [dump(0, "all_reduce", "all_reduce!", groups=(nameless,)), dump(1, "all_reduce", groups=(nameless,))]
    diagnosis = ask(*dumps, size=None)
    assert diagnosis.stuck is not None
    assert diagnosis.stuck.group.ranks == (0, 1, 2)
    assert named(diagnosis) == [1]


def test_a_cycle_is_reported_and_nobody_named() -> None:
    groups = (world(2), Group(name="1", desc="mesh_tp", ranks=(0, 1)))
    diagnosis = ask(dump(0, "all_reduce!"), dump(1, "mesh_tp:all_reduce!"), size=2, launch_groups=groups)
    assert (diagnosis.verdict, diagnosis.kind, named(diagnosis)) == (HangVerdict.HANG, HangKind.ORDER_INVERSION, [])
    assert "ranks 0, 1 wait for each other" in sentence(diagnosis)
    assert "rank 0 inside all_reduce #1 of default_pg without rank 1" in diagnosis.notes[0]


# Mismatches


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_the_minority_of_a_mismatch_is_named(odd: int) -> None:
    for kind, text, how in (
        (HangKind.OP_MISMATCH, "broadcast!", {}),
        (HangKind.SHAPE_MISMATCH, "all_reduce!", {"input_sizes": ((7,),)}),
        (HangKind.DTYPE_MISMATCH, "all_reduce!", {"input_dtypes": ("Double",), "output_dtypes": ("Double",)}),
    ):
        dumps = [dump(r, "all_reduce!") for r in range(3) if r != odd]
        wrong = dump(odd, operations=history(text, rank=odd, **how))
        diagnosis = ask(*dumps, wrong)
        assert (diagnosis.kind, named(diagnosis)) == (kind, [odd])
        assert f"rank {odd} " in sentence(diagnosis)


@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "_all_gather_base", "all_gather", "reduce_scatter"])
def test_other_shapes_of_as_many_elements_are_no_mismatch(name: str) -> None:
    sizes = (((8,),), ((2, 4),), ((8, 1),))
    dumps = [
        dump(r, operations=history(f"{name}!", rank=r, input_sizes=sizes[r], output_sizes=sizes[r])) for r in range(3)
    ]
    assert ask(*dumps).kind is HangKind.ALL_JOINED


@pytest.mark.parametrize("name", ["all_to_all", "gather", "scatter", "barrier"])
def test_shapes_that_may_rightly_differ_are_not_compared(name: str) -> None:
    dumps = [dump(r, operations=history(f"{name}!", rank=r, input_sizes=((r + 1,),))) for r in range(3)]
    assert ask(*dumps).kind is HangKind.ALL_JOINED


@pytest.mark.parametrize(("name", "many"), [("all_gather", "output_sizes"), ("reduce_scatter", "input_sizes")])
def test_a_list_of_tensors_is_the_same_on_all_ranks_but_the_single_one_is_not(name: str, many: str) -> None:
    lists = ((1,), (2,), (3,))
    single = "input_sizes" if many == "output_sizes" else "output_sizes"
    dumps = [dump(r, operations=history(f"{name}!", rank=r, **{many: lists, single: (lists[r],)})) for r in range(3)]
    assert ask(*dumps).kind is HangKind.ALL_JOINED
    wrong = dump(2, operations=history(f"{name}!", rank=2, **{many: lists[::-1][:2], single: (lists[2],)}))
    assert (ask(*dumps[:2], wrong).kind, named(ask(*dumps[:2], wrong))) == (HangKind.SHAPE_MISMATCH, [2])


def test_two_backends_in_one_group_are_not_compared() -> None:
    dumps = [dump(0, "all_reduce!"), dump(1, "allreduce!", backend="nccl2"), dump(2, "all_reduce!")]
    assert ask(*dumps).kind is HangKind.ALL_JOINED


def test_a_tie_is_undecided_and_says_who_did_what() -> None:
    diagnosis = ask(dump(0, "all_reduce!"), dump(1, "broadcast!"), size=2)
    assert (diagnosis.verdict, diagnosis.kind) == (HangVerdict.UNDECIDED, HangKind.OP_MISMATCH)
    assert diagnosis.stuck is not None
    assert diagnosis.stuck.waiting == (0, 1)
    assert diagnosis.notes[0] == ("in #1 of default_pg, rank 0 did all_reduce of 8 elements (Float);"
                                  " rank 1 did broadcast of 8 elements (Float)")  # fmt: skip
    assert "the evidence does not say by whom" in sentence(diagnosis)


def test_a_majority_that_the_unheard_could_turn_is_none() -> None:
    dumps = [dump(0, "all_reduce!"), dump(1, "all_reduce!"), dump(2, "broadcast!")]
    assert named(ask(*dumps)) == [2]
    assert named(ask(*dumps, size=4)) == []


def test_an_earlier_mismatch_is_named_before_a_later_absence() -> None:
    """Rank 2's broadcast passed at once, as a root's does; it waits alone in the next."""
    dumps = [dump(0, "all_reduce!"), dump(1, "all_reduce!"), dump(2, "broadcast", "all_reduce!")]
    diagnosis = ask(*dumps)
    assert (diagnosis.kind, named(diagnosis)) == (HangKind.OP_MISMATCH, [2])


# Sends and receives


@pytest.mark.parametrize("culprit", [0, 1])
def test_in_a_window_that_forgot_the_start_what_is_unfinished_is_paired(culprit: int) -> None:
    """Both windows begin at their eighth operation; only what is pending can be counted."""
    send, recv = ("send>1", "send>1!"), ("recv<0", "recv<0!")
    dumps = [
        dump(0, *(send if culprit else send[:1]), backend="nccl2", first=7),
        dump(1, *(recv if not culprit else recv[:1]), backend="nccl2", first=7),
    ]
    diagnosis = ask(*dumps, size=2)
    assert (diagnosis.kind, named(diagnosis)) == (HangKind.P2P_UNMATCHED, [culprit])
    both = [dump(0, *send, backend="nccl2", first=7), dump(1, *recv, backend="nccl2", first=7)]
    assert ask(*both, size=2).kind is HangKind.ALL_JOINED


def test_the_peer_of_a_transfer_may_be_beyond_what_anybody_knows() -> None:
    diagnosis = ask(*(dump(rank, *("send>7!",) * (rank == 0), backend="nccl2", groups=WORLD) for rank in range(3)))
    assert diagnosis.verdict is HangVerdict.UNDECIDED


# Batches and any source


def test_a_receive_from_anyone_cannot_be_matched() -> None:
    dumps = [
        dump(0, "all_reduce", "recv<?!", backend="nccl2"),
        dump(1, "all_reduce", backend="nccl2"),
        dump(2, "all_reduce", backend="nccl2"),
    ]
    diagnosis = ask(*dumps)
    assert (diagnosis.verdict, named(diagnosis)) == (HangVerdict.UNDECIDED, [])
    assert "nothing tells whether ranks 1, 2 had entered" in sentence(diagnosis)


def test_a_frozen_record_is_told_from_its_peers_progress() -> None:
    """Rank 2's record calls five operations unfinished that rank 0 finished with it."""
    done, stood = ("all_reduce",) * 6, ("all_reduce",) + ("all_reduce!",) * 5
    dumps = [dump(rank, *done, "all_reduce!", backend="nccl") for rank in range(2)]
    diagnosis = ask(*dumps, dump(2, *stood, backend="nccl"))
    assert named(diagnosis) == [2]
    assert "its record calls 5 operations unfinished that its peers finished with it" in diagnosis.culprits[0].why
    assert "and it never entered all_reduce #7" in diagnosis.culprits[0].why
    joined = ask(*dumps, dump(2, *stood, "all_reduce!", backend="nccl"))
    assert "stood still" in sentence(joined) or named(joined) == [2]


# Words


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), "no rank"),
        ((3,), "rank 3"),
        ((2, 0), "ranks 0, 2"),
        (range(64), "ranks 0-63"),
        (range(0, 64, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14, ... (32 of them)"),
        ((*range(9), 12), "ranks 0-8, 12"),
    ],
)
def test_many_ranks_are_said_shortly(ranks: Sequence[int], text: str) -> None:
    assert name_ranks(ranks) == text


def test_a_rank_that_is_stopped_while_the_others_wait_is_said_to_be() -> None:
    diagnosis = ask(*hung(), reports=[report(1, RankState.STOPPED)])
    assert diagnosis.culprits[0].why.endswith("; its process was stopped")


@pytest.mark.parametrize("backend", ["nccl2", "nccl"])
def test_a_ring_buffer_that_dropped_what_is_unfinished_makes_doubtful(backend: str) -> None:
    """pg_status of rank 1 says that less is completed than its window shows."""
    shift = -1 if backend == "nccl2" else 0
    dumps = hung(backend=backend, first=7)
    assert named(ask(*dumps)) == [1]
    behind = (status("0", 8 + shift), status("1", 4, 3))
    diagnosis = ask(dumps[0], msgspec.structs.replace(dumps[1], status=behind), dumps[2])
    assert (diagnosis.verdict, named(diagnosis)) == (HangVerdict.UNDECIDED, [])


def test_the_signature_without_shapes_is_said_without_them() -> None:
    diagnosis = ask(
        dump(0, "barrier!"), dump(1, operations=history("barrier!", input_dtypes=(), output_dtypes=())), size=2
    )
    assert "rank 1 did barrier" in diagnosis.notes[0]


def test_a_group_without_members_in_the_config_is_resolved_otherwise() -> None:
    nobody = Group(name="0", desc="default_pg", ranks=())
    diagnosis = ask(*(msgspec.structs.replace(one, groups=(nobody,)) for one in hung()))
    assert named(diagnosis) == [1]


def test_the_later_of_two_statuses_counts() -> None:
    cut = dump(1, "all_reduce", salvaged=True, cut_at_byte=9, status=(status("0", 1),))
    later = dump(1, "all_reduce", salvaged=True, cut_at_byte=8, status=(status("0", 2),), path="later")
    others = [one for one in hung() if one.rank != 1]
    assert named(ask(*others, cut)) == [1]
    assert named(ask(*others, cut, later)) == []


def test_a_peer_of_a_truncated_window_that_left_little_is_unknown() -> None:
    dumps = [dump(0, "send>1!", backend="nccl2", first=7), dump(1, "all_reduce", backend="nccl2", salvaged=True)]
    assert ask(*dumps, size=2).verdict is HangVerdict.UNDECIDED


def test_all_joined_is_said_as_that() -> None:
    assert sentence(ask(*(dump(rank, "all_reduce!") for rank in range(3)))) == (
        "all entered all_reduce #1 of default_pg and nobody finished: the recorder cannot name a culprit"
    )


def test_a_record_that_stood_still_beside_a_mismatch_is_mentioned() -> None:
    done = ("all_reduce",) * 6
    dumps = [dump(rank, *done, "all_reduce!", backend="nccl") for rank in range(3)]
    odd = dump(3, *done, "broadcast!", backend="nccl")
    stood = dump(4, "all_reduce", *("all_reduce!",) * 6, backend="nccl")
    diagnosis = ask(*dumps, odd, stood, size=5)
    assert (diagnosis.kind, named(diagnosis)) == (HangKind.OP_MISMATCH, [3])
    assert "the record of rank 4 stood still while the peers went on" in diagnosis.notes
    alone = ask(*(dump(rank, *done, backend="nccl") for rank in range(2)), dump(2, "all_reduce", *("all_reduce!",) * 5,
                backend="nccl"))  # fmt: skip
    assert alone.verdict is HangVerdict.UNDECIDED


def test_a_mismatch_before_the_absence_is_the_root() -> None:
    """Rank 3 did another thing in the pair; rank 2 never entered what came later."""
    pair = Group(name="1", desc="mesh_tp", ranks=(0, 1, 3))
    texts = [("mesh_tp:all_reduce!",), ("mesh_tp:all_reduce!", "all_reduce!"), (), ("mesh_tp:broadcast!",)]
    diagnosis = ask(*(dump(rank, *mine, groups=(world(4), pair)) for rank, mine in enumerate(texts)), size=4)
    assert (diagnosis.kind, named(diagnosis)) == (HangKind.OP_MISMATCH, [3])


def test_batches_of_a_window_that_forgot_the_start_leave_doubt() -> None:
    parts = history("send>1!", "recv<1!", rank=0, first=7, backend="nccl2")
    batch = [msgspec.structs.replace(one, sequence=8) for one in parts]
    waiting = msgspec.structs.replace(dump(0, backend="nccl2"), operations=batch)
    diagnosis = ask(waiting, dump(1, "all_reduce", backend="nccl2", first=7), size=2)
    assert (diagnosis.verdict, named(diagnosis)) == (HangVerdict.UNDECIDED, [])


def test_a_late_receiver_of_a_broadcast_that_is_over_for_its_root_is_no_hang() -> None:
    root, leaf = dump(0, "all_reduce", "broadcast"), moved(dump(1, "all_reduce", "broadcast!"), 20, since=1)
    assert ask(root, leaf, size=2).verdict is HangVerdict.NO_HANG


def test_the_dump_of_a_peer_that_is_too_old_says_nothing_of_its_receives() -> None:
    pair = (world(2),)
    diagnosis = ask(dump(0, "all_reduce", "send>1!", backend="nccl2"), dump(1, groups=pair), size=2)
    assert (diagnosis.verdict, named(diagnosis)) == (HangVerdict.UNDECIDED, [])
    assert named(ask(dump(0, "send>1!", backend="nccl2"), dump(1, groups=pair), size=2)) == [1]


def test_a_receive_whose_send_is_finished_leaves_doubt() -> None:
    diagnosis = ask(dump(0, "send>1", backend="nccl"), dump(1, "recv<0!", backend="nccl"), size=2)
    assert (diagnosis.verdict, named(diagnosis)) == (HangVerdict.UNDECIDED, [])
    assert "of rank 1, a send or receive is unfinished whose other side is finished" in diagnosis.notes


def test_a_mismatch_that_gloo_calls_finished_is_the_root_of_what_all_joined_after_it() -> None:
    dumps = [dump(rank, "all_reduce", "broadcast" if rank == 2 else "all_reduce", "all_reduce!") for rank in range(3)]
    diagnosis = ask(*dumps)
    assert (diagnosis.kind, named(diagnosis)) == (HangKind.OP_MISMATCH, [2])
    assert diagnosis.stuck is not None
    assert diagnosis.stuck.sequence == 2
    others = [dump(rank, "all_reduce", "broadcast" if rank == 2 else "all_reduce", "all_reduce!", backend="nccl2")
              for rank in range(3)]  # fmt: skip
    assert (ask(*others).kind, named(ask(*others))) == (HangKind.OP_MISMATCH, [2])


def test_a_rank_whose_last_operation_is_a_batch_may_be_inside_of_it() -> None:
    def batch(rank: int, *texts: str) -> RankDump:
        made = history(*texts, rank=rank, backend="nccl2")
        quick = [msgspec.structs.replace(o, completed_ns=o.created_ns + 1000) if o.p2p else o for o in made]
        return dump(rank, operations=quick)

    waiting = dump(2, "all_reduce!", backend="nccl2")
    diagnosis = ask(batch(0, "send>1"), batch(1, "recv<0"), waiting)
    assert (diagnosis.verdict, named(diagnosis)) == (HangVerdict.UNDECIDED, [])
    after = ask(batch(0, "send>1", "all_reduce!"), batch(1, "recv<0", "mesh_tp:barrier"), waiting)
    assert named(after) == [1]


def test_a_tie_in_a_pair_is_decided_by_the_parallel_pairs_of_the_mesh() -> None:
    pairs = [Group(name=str(i + 1), desc="mesh_tp", ranks=(2 * i, 2 * i + 1)) for i in range(3)]

    def of_mesh(rank: int, *texts: str) -> RankDump:
        made = history(*(f"mesh_tp:{text}" for text in texts), rank=rank)
        named_so = [msgspec.structs.replace(o, group_name=pairs[rank // 2].name) for o in made]
        return dump(rank, operations=named_so)

    def mesh(*last: str, before: str = "all_reduce", after: str = "") -> Diagnosis:
        start = ("all_reduce",) * 3
        dumps = [of_mesh(rank, *start, before if rank < 4 else "all_reduce", text, *[after] * bool(after))
                 for rank, text in enumerate(last)]  # fmt: skip
        return ask(*dumps, size=6, launch_groups=(world(6), *pairs))

    done, stuck, odd = "all_reduce", "all_reduce!", "broadcast!"
    assert named(mesh(stuck, odd, done, done, done, done)) == [1]
    assert named(mesh(stuck, odd, done, done, done, done, after="barrier!")) == [1]
    assert named(mesh(stuck, odd, done, done, "broadcast", "broadcast")) == []  # the parallel pairs differ
    assert named(mesh(stuck, odd, "barrier", "barrier", "barrier", "barrier")) == []  # and did neither
    assert named(mesh(stuck, odd, done, done, done, done, before="barrier")) == []  # and had done other things before
    alone = [of_mesh(rank, *("all_reduce",) * 4, text) for rank, text in enumerate((stuck, odd))]
    assert named(ask(*alone, size=2, launch_groups=(world(2), pairs[0]))) == []


def test_when_most_finished_long_ago_it_is_the_one_who_came_late() -> None:
    """As gloo tells it: the three gave up and call it retired; rank 3 came a minute after."""
    dumps = [dump(rank, "all_reduce", "all_reduce") for rank in range(3)]
    late = moved(dump(3, "all_reduce", "all_reduce!"), 60, since=1)
    assert ask(*dumps, late, size=4).ranks.stale == ()


def test_operations_that_nobody_finished_may_be_of_any_age() -> None:
    """The first waits for minutes already: that is the hang, and no earlier job."""
    dumps = [dump(0, "all_reduce!"), moved(dump(1, "all_reduce!"), -300, since=0)]
    assert ask(*dumps, size=3).ranks.stale == ()


def test_a_pg_id_that_is_another_group_s_here_is_not_taken_from_the_peers() -> None:
    """Rank 2 made a group of its own first, so its pg_id 1 is not what it is with the others."""
    pair, own = Group(name="1", desc="mesh_tp", ranks=(0, 1, 2)), Group(name="2", desc="mesh_dp", ranks=(2,))
    waiting = [dump(rank, "mesh_tp:all_reduce!", status=(status("1", 1, 0),)) for rank in (0, 1)]
    mine = history("mesh_dp:all_reduce", rank=2)
    last = dump(2, operations=[msgspec.structs.replace(mine[0], pg_id=1)], status=(status("1", 1),), salvaged=True)
    assert ask(*waiting, last, launch_groups=(world(3), pair, own)).verdict is HangVerdict.UNDECIDED
    whole = msgspec.structs.replace(last, salvaged=False)
    assert named(ask(*waiting, whole, launch_groups=(world(3), pair, own))) == [2]


def test_a_rank_alone_in_its_group_waits_for_something_that_is_not_shown() -> None:
    own = Group(name="1", desc="mesh_tp", ranks=(1,))
    dumps = [dump(0, "all_reduce"), dump(1, "all_reduce", "mesh_tp:all_reduce!"), dump(2, "all_reduce")]
    diagnosis = ask(*dumps, launch_groups=(world(3), own))
    assert (diagnosis.verdict, named(diagnosis)) == (HangVerdict.UNDECIDED, [])


def test_a_group_that_lacks_the_very_rank_that_waits_in_it_is_no_crash() -> None:
    spoiled = Group(name="0", desc="default_pg", ranks=(5, 6))
    dumps = [dump(rank, "all_reduce", "all_reduce!", groups=(spoiled,)) for rank in range(3)]
    assert ask(*dumps).verdict is not HangVerdict.NO_HANG


def test_a_cut_file_does_not_prove_that_its_rank_waits_for_nobody() -> None:
    others = [one for one in hung() if one.rank != 1]
    inside_of_what_was_cut = (status("0", 1), status("1", 1, 0))
    cut = dump(1, "all_reduce", salvaged=True, cut_at_byte=100, status=inside_of_what_was_cut)
    assert named(ask(*others, cut)) == []
    idle = msgspec.structs.replace(cut, status=(status("0", 1), status("1", 1)))
    assert named(ask(*others, idle)) == [1]
