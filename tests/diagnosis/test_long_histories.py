"""Histories longer than what is looked at, rings shorter than what is unfinished, groups that share a name."""

import msgspec
import pytest
from dump_builders import dump, status, world

from hangdrill.diagnosis import diagnose, history
from hangdrill.model.diagnosis import Diagnosis, HangVerdict
from hangdrill.model.dump import Group, RankDump

OVER = ("all_reduce",) * 20


def named(found: Diagnosis) -> set[int]:
    return {culprit.rank for culprit in found.culprits}


def swapped(wrong: int, *does: str, ranks: int = 4) -> list[RankDump]:
    """All enter all_reduce #21, but one rank does something else under that number."""
    everybody = (world(ranks),)
    return [
        dump(rank, *OVER, *(does if rank == wrong else ("all_reduce!",)), backend="nccl2", groups=everybody)
        for rank in range(ranks)
    ]


@pytest.mark.parametrize("wrong", [0, 1, 3])
def test_the_root_of_a_wrong_broadcast_that_finished_is_the_culprit_whichever_rank_it_is(wrong: int) -> None:
    """Right only where it is the last rank: the name of an operation is taken from whoever was looked at last."""
    found = diagnose(swapped(wrong, "broadcast", "all_reduce!"), world_size=4)
    assert named(found) <= {wrong}
    assert found.verdict is not HangVerdict.NO_HANG


@pytest.mark.parametrize("wrong", [0, 3])
def test_a_rank_that_broadcasts_on_and_on_is_not_no_hang(wrong: int) -> None:
    """40 broadcasts of which it is the root, all over, while the others are inside the first all_reduce."""
    found = diagnose(swapped(wrong, *["broadcast"] * 40), world_size=4)
    assert found.verdict is not HangVerdict.NO_HANG


def test_what_is_notable_does_not_change_the_answer_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    dumps = swapped(3, *["broadcast"] * 40)
    quick = diagnose(dumps, world_size=4)
    monkeypatch.setattr(history, "LAST", 10**9)
    assert quick == diagnose(dumps, world_size=4)


@pytest.mark.parametrize("root", [0, 1, 2])
def test_the_root_of_the_right_broadcast_that_finished_exonerates_nobody_and_accuses_nobody(root: int) -> None:
    """All do broadcast #21, rank 3 calls all_reduce; the root has finished, and waits in #22."""
    last = {root: ("broadcast", "all_reduce!"), 3: ("all_reduce!",)}
    dumps = [
        dump(rank, *OVER, *last.get(rank, ("broadcast!",)), backend="nccl2", groups=(world(4),)) for rank in range(4)
    ]
    assert named(diagnose(dumps, world_size=4)) <= {3}


@pytest.mark.parametrize("aheads", [(150, 90, 90), (99, 150, 50)])
def test_what_the_ring_forgot_of_a_rank_that_ran_far_ahead_was_not_finished(aheads: tuple[int, ...]) -> None:
    """A ring of 100; rank 3 never enters #1001; one of the others has enqueued more than its ring holds."""
    dumps = []
    for rank, ahead in enumerate([*aheads, None]):
        texts = ["all_reduce"] * 1000 + ["all_reduce!"] * (0 if ahead is None else ahead + 1)
        whole = dump(rank, *texts, backend="nccl2", groups=(world(4),))
        dumps.append(
            dump(
                rank,
                backend="nccl2",
                groups=(world(4),),
                operations=tuple(whole.operations)[-100:],
                status=(status("0", len(texts) - 1, 999),),
            )
        )
    assert named(diagnose(dumps, world_size=4)) <= {3}


def test_a_group_of_the_same_name_elsewhere_proves_nothing_for_a_gloo_rank() -> None:
    """A mesh of 2 x 2 on gloo, whose dumps name no members: rank 3 is held, rank 1 waits for it in its column."""
    over = ("all_reduce", "mesh_dp:all_reduce") * 4
    last = {
        0: ("all_reduce", "mesh_dp:all_reduce", "all_reduce!"),
        1: ("all_reduce", "mesh_dp:all_reduce!"),
        2: ("all_reduce", "mesh_dp:all_reduce", "all_reduce!"),
        3: ("all_reduce",),
    }
    dumps = [dump(rank, *over, *last[rank]) for rank in range(4)]
    found = diagnose(dumps, world_size=4)
    assert named(found) <= {3}
    told = [world(4), *(Group(name="2", desc="mesh_dp", ranks=ranks) for ranks in ((0, 2), (1, 3)))]
    assert named(diagnose(dumps, world_size=4, launch_groups=told)) == {3}  # the control: with members it is right


def test_a_send_that_is_over_has_been_posted_though_its_receive_waits_behind_another_operation() -> None:
    """A small send is over at once. Rank 2 never enters all_reduce #21 of mesh_tp; behind it rank 1 has enqueued a
    receive, whose send by rank 0 is over. Rings that have wrapped."""
    tp = Group(name="1", desc="mesh_tp", ranks=(1, 2))
    tail = {
        0: ("send>1",) * 20 + ("send>1",),
        1: ("recv<0", "mesh_tp:all_reduce") * 20 + ("mesh_tp:all_reduce!", "recv<0!"),
        2: ("mesh_tp:all_reduce",) * 20,
    }
    dumps = [dump(rank, *texts, backend="nccl", first=5000, groups=(world(3), tp)) for rank, texts in tail.items()]
    assert named(diagnose(dumps, world_size=3)) <= {2}
    whole = [dump(rank, *texts, backend="nccl", groups=(world(3), tp)) for rank, texts in tail.items()]
    assert named(diagnose(whole, world_size=3)) == {2}  # the control: from the start they are counted


DAY_NS = 86_400 * 10**9


@pytest.mark.parametrize("ranks", [10, 40])
def test_a_file_of_yesterday_is_found_however_many_last_sequences_there_are(ranks: int) -> None:
    """All are broadcasts; rank 5 stands at #1400, the others have gone on by different amounts and wait. Of rank 7
    there is a file of yesterday whose ring holds #1421 to #1450 of this group. With 10 ranks (the control) it is found;
    with 40 only every third of the last sequences is compared, and it is named beside the culprit."""
    dumps = []
    for rank in range(ranks):
        count = {5: 1400, 7: 1450}.get(rank, 1460 + 2 * rank)
        texts = ("broadcast",) * count + (() if rank in {5, 7} else ("all_reduce!",))
        operations = tuple(dump(rank, *texts, backend="nccl2", timeout_ms=600_000).operations)[-600:]
        if rank == 7:
            operations = tuple(
                msgspec.structs.replace(
                    o, created_ns=o.created_ns - DAY_NS, completed_ns=(o.completed_ns or 0) - DAY_NS
                )
                for o in operations[-30:]
            )
        dumps.append(dump(rank, operations=operations, groups=(world(ranks),)))
    assert named(diagnose(dumps, world_size=ranks)) <= {5}


def test_a_group_of_the_same_name_elsewhere_proves_nothing_however_far_it_went() -> None:
    """As above; the other column has done a broadcast more."""
    over = ("all_reduce", "mesh_dp:all_reduce") * 4
    last = {
        0: ("all_reduce", "mesh_dp:all_reduce", "mesh_dp:broadcast", "all_reduce!"),
        1: ("all_reduce", "mesh_dp:all_reduce!"),
        2: ("all_reduce", "mesh_dp:all_reduce", "mesh_dp:broadcast", "all_reduce!"),
        3: ("all_reduce",),
    }
    dumps = [dump(rank, *over, *last[rank]) for rank in range(4)]
    assert named(diagnose(dumps, world_size=4)) <= {3}


def test_sizes_whose_product_has_thousands_of_digits_are_told() -> None:
    """One entry of 3 KB; int -> str is refused beyond 4300 digits, and `diagnose` ends with 70."""
    dumps = []
    for rank in range(3):
        sizes = ((2**62,) * 300,) if rank == 1 else ((8,),)
        operations = list(dump(rank, "all_reduce", "all_reduce!", backend="nccl2").operations)
        operations[-1] = msgspec.structs.replace(operations[-1], input_sizes=sizes)
        dumps.append(dump(rank, groups=(world(3),), operations=tuple(operations)))
    assert [culprit.rank for culprit in diagnose(dumps, world_size=3).culprits] == [1]
