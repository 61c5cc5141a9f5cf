"""Real gloo jobs, one fault each: the answer is the truth, also with files lost, formats mixed and nothing but dumps.

The runs in tests/data/gloo_runs are recorded drills (tests/data/make_gloo_runs.py); each truth comes from its scenario
and from what the faulty rank's agent reported, never from a diagnosis.
"""

from pathlib import Path

import msgspec
import pytest
from gloo_run_tools import (
    CASES,
    RUNS,
    answer,
    as_version_2_9,
    bare_dumps,
    complaint,
    copy_of,
    files_of,
    hold_to,
    shuffled,
    truth_of,
)

from hangdrill.incident import diagnose, diagnose_evidence
from hangdrill.model.diagnosis import Basis
from hangdrill.model.run import Manifest
from hangdrill.recorder import read_evidence

GLOO_NAMES = {"all_gather_into_tensor": "all_gather", "all_to_all_single": "all_to_all"}
by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@by_case
def test_the_answer_is_the_truth(case: Path) -> None:
    truth = truth_of(case)
    diagnosis = diagnose(case)
    hold_to(complaint(truth, diagnosis))
    assert diagnosis.ranks.expected == truth["world_size"]
    assert list(diagnosis.ranks.present) == truth["dumps_that_arrived"]
    if "kind" in truth:
        assert diagnosis.kind is not None
        assert diagnosis.kind.value == truth["kind"]


@by_case
def test_the_stuck_operation_is_that_of_the_fault(case: Path) -> None:
    truth, stuck = truth_of(case), diagnose(case).stuck
    if "sequence" in truth and truth["workload"] != "pipeline":  # gloo records no send or receive
        assert stuck is not None
        found = [*stuck.group.ranks], stuck.op, stuck.sequence
        assert found == (truth["group"], GLOO_NAMES.get(truth["op"], truth["op"]), truth["sequence"])


@by_case
def test_the_stuck_operation_is_one_that_waits_for_the_culprit(case: Path) -> None:
    """By the agents' own counts."""
    truth, stuck = truth_of(case), diagnose(case).stuck
    if not truth["hang"] or truth["workload"] == "pipeline":  # gloo records no send or receive
        assert stuck is None
        return
    assert stuck is not None
    manifest = msgspec.json.decode((case / "evidence" / "manifest.json").read_bytes(), type=Manifest)
    entered = {one.rank: {count.name: count.collectives for count in one.counts} for one in manifest.ranks}
    assert stuck.waiting
    for rank in stuck.waiting:
        assert entered[rank][stuck.group.name] >= stuck.sequence
    if truth["fault"] not in {"wrong-op", "wrong-shape", "wrong-dtype", "skip"}:
        assert [*stuck.absent] == truth["culprits"]
        assert entered[truth["stalled_rank"]][stuck.group.name] == stuck.sequence - 1


@by_case
def test_the_order_of_the_files_changes_nothing(case: Path) -> None:
    evidence = read_evidence(case)
    first = diagnose_evidence(evidence)
    for seed in range(5):
        assert diagnose_evidence(shuffled(evidence, seed)) == first


@by_case
def test_with_any_rank_lost_no_innocent_is_named(case: Path) -> None:
    """Neither its dump nor its trace was pulled: the collector's report of the rank is all there is."""
    truth, evidence = truth_of(case), read_evidence(case)
    for rank in truth["dumps_that_arrived"]:
        left = tuple(dump for dump in evidence.dumps if dump.rank != rank)
        diagnosis = diagnose_evidence(msgspec.structs.replace(evidence, dumps=left))
        hold_to(complaint(truth, diagnosis, may_doubt=True))


@by_case
def test_with_any_file_deleted_no_innocent_is_named(case: Path, tmp_path: Path) -> None:
    """The manifest still lists it."""
    truth = truth_of(case)
    copy = copy_of(case, tmp_path)
    for rank in truth["dumps_that_arrived"]:
        for path in files_of(copy, rank):
            kept = path.rename(tmp_path / "kept")
            diagnosis = diagnose(copy)
            kept.rename(path)
            assert path.name in diagnosis.ranks.unreadable[0].file
            hold_to(complaint(truth, diagnosis, may_doubt=True))


@by_case
@pytest.mark.parametrize("odd", [0, 1])
def test_half_of_the_ranks_in_format_2_9_change_nothing(case: Path, odd: int, tmp_path: Path) -> None:
    copy = copy_of(case, tmp_path)
    before = diagnose(copy)
    ranks = truth_of(case)["dumps_that_arrived"]
    for rank in ranks[odd::2]:
        for path in files_of(copy, rank):
            as_version_2_9(path)
    assert {dump.rank for dump in read_evidence(copy).dumps if dump.version == (2, 9)} == {*ranks[odd::2]}
    assert answer(diagnose(copy)) == answer(before)


@by_case
def test_bare_dumps_never_name_an_innocent(case: Path, tmp_path: Path) -> None:
    truth = truth_of(case)
    folder = bare_dumps(case, tmp_path / "bare")
    hold_to(
        complaint(truth, diagnose(folder), may_doubt=True),
        complaint(truth, diagnose(folder, world_size=truth["world_size"]), may_doubt=True),
    )


@by_case
def test_bare_dumps_with_one_lost_name_nobody_but_the_lost_or_the_culprit(case: Path, tmp_path: Path) -> None:
    """When all who are there wait, the lost rank may be inferred: a killed one looks the same."""
    truth = truth_of(case)
    for rank in truth["dumps_that_arrived"]:
        folder = bare_dumps(case, tmp_path / f"bare_{rank}", without=rank)
        if not any(folder.iterdir()):
            continue
        for size in (None, truth["world_size"]):
            diagnosis = diagnose(folder, world_size=size)
            named = {one.rank for one in diagnosis.culprits}
            dumps = read_evidence(folder).dumps
            all_wait = all(not dump.operations[-1].retired for dump in dumps if dump.operations)
            excused = all_wait and all(one.basis is Basis.INFERRED for one in diagnosis.culprits) and named == {rank}
            hold_to("" if excused else complaint(truth, diagnosis, may_doubt=True))


def test_the_runs_are_as_wide_as_they_say() -> None:
    truths = [truth_of(case) for case in CASES]
    hung = [truth for truth in truths if truth["hang"]]
    assert len(truths) >= 20
    assert sum(not truth["hang"] for truth in truths) >= 2
    assert {truth["workload"] for truth in truths} == {
        "all-reduce", "all-to-all", "ddp", "fsdp2", "mesh-2d", "pipeline", "tensor-parallel"
    }  # fmt: skip
    assert {truth["fault"] for truth in hung} == {
        "hold", "hold-gil", "spin", "stop", "kill", "exit", "raise", "skip", "wrong-op", "wrong-shape", "wrong-dtype",
        "dataloader", "in-destroy",
    }  # fmt: skip
    places = [(truth["stalled_rank"], truth["world_size"]) for truth in hung if truth["fault"] == "hold"]
    assert any(rank == 0 for rank, _ in places)
    assert any(0 < rank < size - 1 for rank, size in places)
    assert any(rank == size - 1 for rank, size in places)


def test_a_wrong_answer_is_noticed() -> None:
    """The negative control: the answer to one run is wrong for another, and doubt is not always right."""
    names = ("all-reduce-hold-rank-0-of-2", "ddp-hold-rank-1-of-4", "ddp-none-of-2", "pipeline-hold-rank-1-of-3")
    first, middle, healthy, doubtful = ((truth_of(RUNS / name), diagnose(RUNS / name)) for name in names)
    assert "innocent" in complaint(first[0], middle[1])
    assert "innocent" in complaint(healthy[0], middle[1])
    assert complaint(middle[0], healthy[1], may_doubt=True)
    assert complaint(middle[0], doubtful[1])
    assert not complaint(middle[0], doubtful[1], may_doubt=True)
    assert complaint(healthy[0], doubtful[1])
