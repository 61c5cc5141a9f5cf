"""Every real case is answered rightly, from the files alone, in any order."""

import json
import random
from pathlib import Path

import msgspec
import pytest

from hangdrill.diagnosis import diagnose, sentence
from hangdrill.model.diagnosis import Basis, HangKind, HangVerdict
from hangdrill.recorder import read_evidence

DATA = Path(__file__).parents[1] / "data" / "dumps"
CASES = sorted(path.parent for path in DATA.glob("*/*/truth.json"))
by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@by_case
def test_the_answer_is_the_truth(case: Path) -> None:
    truth = json.loads((case / "truth.json").read_text())
    evidence = read_evidence(case)
    diagnosis = diagnose(evidence.dumps, unreadable=evidence.unreadable)
    assert [culprit.rank for culprit in diagnosis.culprits] == truth["culprits"]
    assert diagnosis.verdict is (HangVerdict.HANG if truth["culprits"] else HangVerdict.UNDECIDED)
    assert diagnosis.ranks.expected == truth.get("world_size_in_dumps", truth["world_size"])
    arrived = truth.get("dumps_that_arrived", list(range(truth["world_size"])))
    assert list(diagnosis.ranks.present) == arrived
    for culprit in diagnosis.culprits:
        assert (culprit.basis is Basis.OBSERVED) is (culprit.rank in arrived)
    if "sequence" in truth:
        assert diagnosis.stuck is not None
        assert diagnosis.stuck.sequence == truth["sequence"]


@by_case
def test_the_order_of_the_files_changes_nothing(case: Path) -> None:
    dumps = list(read_evidence(case).dumps)
    first = diagnose(dumps)
    for seed in range(3):
        random.Random(seed).shuffle(dumps)
        assert diagnose(dumps) == first


@pytest.mark.parametrize("name", ["gpu_error_1st", "lock_gil_1st"])
def test_with_any_dump_of_the_sixteen_lost_no_innocent_is_named(name: str) -> None:
    truth = {*json.loads((DATA / "nvrx" / name / "truth.json").read_text())["culprits"]}
    dumps = read_evidence(DATA / "nvrx" / name).dumps
    for lost in range(16):
        diagnosis = diagnose(dump for dump in dumps if dump.rank != lost)
        assert {culprit.rank for culprit in diagnosis.culprits} <= truth
        assert diagnosis.verdict is not HangVerdict.NO_HANG


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("legacy-stall", HangKind.RANK_ABSENT, "rank 1 never entered all_reduce #55 of default_pg; rank 0 waited"),
        ("nccl-stall", HangKind.RANK_ABSENT,
         "rank 1 left no sign of having entered all_reduce #55 of default_pg; rank 0 waited"),
        ("legacy-pipeline-stall", HangKind.P2P_UNMATCHED,
         "rank 1 never posted the other side of recv #8 of default_pg; rank 0 waited"),
    ],
)  # fmt: skip
def test_the_sentence_says_it(name: str, kind: HangKind, said: str) -> None:
    diagnosis = diagnose(read_evidence(DATA / "h200" / name).dumps)
    assert diagnosis.kind is kind
    assert sentence(diagnosis) == said


def test_a_mismatch_of_two_says_what_each_did() -> None:
    diagnosis = diagnose(read_evidence(DATA / "h200" / "nccl-shape-mismatch").dumps)
    assert diagnosis.kind is HangKind.SHAPE_MISMATCH
    assert (
        "rank 1 did all_reduce of 77 elements (Float); rank 0 did all_reduce of 1048576 elements" in diagnosis.notes[0]
    )


def test_before_the_operation_that_hung_there_was_no_hang() -> None:
    """The negative control: the same dumps without the operation that one rank never entered."""
    dumps = read_evidence(DATA / "h200" / "legacy-stall").dumps
    before = [msgspec.structs.replace(dump, operations=dump.operations[:54]) for dump in dumps]
    assert diagnose(before).verdict is HangVerdict.NO_HANG


def test_half_a_dump_still_tells() -> None:
    """The file of the waiting rank was cut behind the pending operation of another group."""
    from hangdrill.recorder import parse_dump

    case = DATA / "h200" / "nccl-collector"
    data = (case / "fr_0").read_bytes()
    cut = parse_dump(data[:-200], rank=0)
    assert cut.salvaged
    other = next(dump for dump in read_evidence(case).dumps if dump.rank == 1)
    diagnosis = diagnose([cut, other])
    assert [culprit.rank for culprit in diagnosis.culprits] == [1]
