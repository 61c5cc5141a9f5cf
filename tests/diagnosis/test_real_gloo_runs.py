"""Real gloo jobs, one fault each: the answer is the truth, also with files lost, formats mixed and nothing but dumps.

The runs in tests/data/gloo_runs are recorded drills (tests/data/make_gloo_runs.py); each truth comes from its scenario
and from what the faulty rank's agent reported, never from a diagnosis.
"""

import json
import pickle
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hangdrill.incident import diagnose, diagnose_evidence
from hangdrill.model.diagnosis import Basis, Culprit, Diagnosis, HangVerdict, StuckOperation
from hangdrill.model.run import Manifest
from hangdrill.recorder import Evidence, read_evidence

RUNS = Path(__file__).parents[1] / "data" / "gloo_runs"
CASES = sorted(path.parent for path in RUNS.glob("*/truth.json"))
GLOO_NAMES = {"all_gather_into_tensor": "all_gather", "all_to_all_single": "all_to_all"}
by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def truth_of(case: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((case / "truth.json").read_text())
    return found


def complaint(truth: dict[str, Any], diagnosis: Diagnosis, *, may_doubt: bool = False) -> str:
    """What is wrong with an answer; nothing when it is right. may_doubt: undecided is right too."""
    named = {culprit.rank for culprit in diagnosis.culprits}
    if innocent := named - {*truth["culprits"]}:
        return f"names the innocent {sorted(innocent)}: {diagnosis}"
    doubts = diagnosis.verdict is HangVerdict.UNDECIDED or (diagnosis.verdict is HangVerdict.HANG and not named)
    if truth["hang"] and doubts and (may_doubt or "cannot_tell" in truth):
        return ""
    if not truth["hang"] and may_doubt and diagnosis.verdict is HangVerdict.UNDECIDED:
        return ""
    right = HangVerdict.HANG if truth["hang"] else HangVerdict.NO_HANG
    if diagnosis.verdict is not right or named != {*truth["culprits"]}:
        return f"{diagnosis.verdict.value}, {sorted(named)} instead of {right.value}, {truth['culprits']}: {diagnosis}"
    return ""


def hold_to(*problems: str) -> None:
    """Fail with the problems alone."""
    if found := [problem for problem in problems if problem]:
        pytest.fail("\n".join(found), pytrace=False)


def answer(
    diagnosis: Diagnosis,
) -> tuple[HangVerdict, object, tuple[Culprit, ...], StuckOperation | None, tuple[int, ...]]:
    """All of it but the notes and the names of files."""
    return diagnosis.verdict, diagnosis.kind, diagnosis.culprits, diagnosis.stuck, diagnosis.ranks.present


def copy_of(case: Path, folder: Path) -> Path:
    return shutil.copytree(case, folder / case.name)


def files_of(case: Path, rank: int) -> list[Path]:
    return sorted((case / "evidence").glob(f"rank_{rank}.a*"))


def bare_dumps(case: Path, folder: Path, *, without: int | None = None) -> Path:
    """What a stranger has: a file a rank (its dump, else its trace), and nothing that hangdrill wrote beside it."""
    folder.mkdir()
    for rank in truth_of(case)["dumps_that_arrived"]:
        if rank != without:
            dump, trace = (case / "evidence" / f"rank_{rank}.a0.{kind}" for kind in ("dump.pickle", "trace.json"))
            shutil.copy(dump if dump.exists() else trace, folder / f"fr_{rank}")
    return folder


def as_version_2_9(path: Path) -> None:
    """Format 2.9 differs in one key: what 2.10 calls comm_lib_version is nccl_version."""
    pickled = path.suffix == ".pickle"
    root = pickle.loads(path.read_bytes()) if pickled else json.loads(path.read_text())
    root = {"version": "2.9", "nccl_version": root["comm_lib_version"], **root}
    root["version"] = "2.9"
    del root["comm_lib_version"]
    path.write_bytes(pickle.dumps(root, protocol=2) if pickled else json.dumps(root).encode())


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
def test_the_stuck_operation_is_one_that_waits_for_the_culprit(case: Path) -> None:
    """By the agents' own counts. Where the culprit is awaited in one group only, it is the fault's operation."""
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
    if truth.get("group") == [*range(truth["world_size"])]:
        found = [*stuck.group.ranks], stuck.op, stuck.sequence
        assert found == (truth["group"], GLOO_NAMES.get(truth["op"], truth["op"]), truth["sequence"])


def shuffled(evidence: Evidence, seed: int) -> Evidence:
    dice = random.Random(seed)

    def mixed(values: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(sorted(values, key=lambda _: dice.random()))

    return msgspec.structs.replace(
        evidence,
        dumps=mixed(evidence.dumps),
        reports=mixed(evidence.reports),
        launch_groups=mixed(evidence.launch_groups),
    )


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
