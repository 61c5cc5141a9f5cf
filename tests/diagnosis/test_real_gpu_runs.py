"""Real jobs on two GPUs, every NCCL backend, road and fault: the answer is the truth, or "cannot tell" where the truth
says that nobody can, and never an innocent rank.

The runs in tests/data/gpu_runs are recorded drills (tests/data/make_gpu_runs.py); each truth comes from its scenario
and from what the faulty rank's agent reported, never from a diagnosis.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gloo_run_tools import answer, complaint, copy_of, files_of, hold_to, shuffled, truth_of

from hangdrill.incident import diagnose, diagnose_evidence
from hangdrill.model.diagnosis import StuckOperation, UnreadableDump
from hangdrill.recorder import read_evidence

RUNS = Path(__file__).parents[1] / "data" / "gpu_runs"
CASES = sorted(path.parent for path in RUNS.glob("*/truth.json"))
TRUTHS = {case.name: truth_of(case) for case in CASES}
EVIDENCE = [case for case in CASES if TRUTHS[case.name]["dumps_that_arrived"]]

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
by_evidence = pytest.mark.parametrize("case", EVIDENCE, ids=lambda case: case.name)

GOES_ON = {"skip", "wrong-op", "wrong-shape", "wrong-dtype"}
"""Faults after which somebody may wait in a later operation, or finish this one."""


@by_case
def test_the_answer_is_the_truth(case: Path) -> None:
    truth = TRUTHS[case.name]
    diagnosis = diagnose(case)
    hold_to(complaint(truth, diagnosis))
    assert list(diagnosis.ranks.present) == truth["dumps_that_arrived"]
    if "kind" in truth:
        assert diagnosis.kind is not None
        assert diagnosis.kind.value == truth["kind"]


@pytest.mark.parametrize(
    "case", [case for case in CASES if "cannot_tell" in TRUTHS[case.name]], ids=lambda case: case.name
)
def test_where_nobody_can_tell_nobody_is_named_and_the_reason_is_given(case: Path) -> None:
    diagnosis = diagnose(case)
    assert diagnosis.culprits == ()
    assert diagnosis.notes


@by_evidence
def test_the_stuck_operation_is_that_of_the_fault(case: Path) -> None:
    truth, stuck = TRUTHS[case.name], diagnose(case).stuck
    if "sequence" in truth and truth["workload"] != "pipeline" and truth["fault"] not in GOES_ON:
        assert stuck is not None
        assert ([*stuck.group.ranks], stuck.sequence) == (truth["group"], truth["sequence"])
        assert_waits_for(stuck, truth["culprits"], truth["fault"])


def assert_waits_for(stuck: StuckOperation, culprits: list[int], fault: str) -> None:
    assert [*stuck.absent] == ([] if fault == "gpu-kernel" else culprits)
    assert not {*stuck.waiting} & {*stuck.absent}


@by_evidence
def test_the_order_of_the_files_changes_nothing(case: Path) -> None:
    evidence = read_evidence(case)
    first = diagnose_evidence(evidence)
    for seed in range(5):
        assert answer(diagnose_evidence(shuffled(evidence, seed))) == answer(first)


@by_evidence
def test_with_any_rank_lost_no_innocent_is_named(case: Path) -> None:
    """Its files are listed, and cannot be read."""
    truth, evidence = TRUTHS[case.name], read_evidence(case)
    for rank in truth["dumps_that_arrived"]:
        left = tuple(dump for dump in evidence.dumps if dump.rank != rank)
        lost = UnreadableDump(rank=rank, file=f"rank_{rank}.a0.dump.pickle", error="lost")
        diagnosis = diagnose_evidence(
            msgspec.structs.replace(evidence, dumps=left, unreadable=(*evidence.unreadable, lost))
        )
        hold_to(complaint(truth, diagnosis, may_doubt=True))


@by_evidence
def test_with_any_file_deleted_no_innocent_is_named(case: Path, tmp_path: Path) -> None:
    """The manifest still lists it."""
    truth = TRUTHS[case.name]
    copy = copy_of(case, tmp_path)
    for rank in truth["dumps_that_arrived"]:
        for path in files_of(copy, rank):
            kept = path.rename(tmp_path / "kept")
            diagnosis = diagnose(copy)
            kept.rename(path)
            assert any(path.name in one.file for one in diagnosis.ranks.unreadable)
            hold_to(complaint(truth, diagnosis, may_doubt=True))


def test_the_runs_are_as_wide_as_they_say() -> None:
    truths = list(TRUTHS.values())

    def seen(key: str) -> set[Any]:
        return {truth[key] for truth in truths}

    assert len(truths) >= 40
    assert seen("cell") == {"nccl", "nccl-lazy", "nccl-legacy", "mixed", "rolled-back", "torch-2.11"}
    assert seen("road") == {"native", "debug-server", "debug-server-60s", "collector"}
    assert seen("backend_class") == {"ProcessGroupNCCL2", "ProcessGroupNCCLLazy", "ProcessGroupNCCL"}
    assert seen("workload") == {
        "all-reduce", "ddp", "fsdp2", "tensor-parallel", "pipeline", "mesh-2d", "all-to-all", "coalesced"
    }  # fmt: skip
    assert seen("fault") == {
        "hold", "hold-gil", "stop", "spin", "skip", "wrong-op", "wrong-shape", "wrong-dtype", "raise", "kill", "exit",
        "slow", "in-destroy", "dataloader", "gpu-kernel", "oom", "store-death", "none",
    }  # fmt: skip
    assert {truth["torch"].partition("+")[0] for truth in truths} == {"2.15.0", "2.11.0"}
    pairs = {(truth["cell"], truth["road"]) for truth in truths if truth["cell"] != "torch-2.11"}
    assert len(pairs) == 18  # 60 s of the debug server: not on mixed and rolled-back


def test_no_path_of_the_machine_is_left() -> None:
    for path in RUNS.rglob("*.*"):
        if path.is_file():
            assert not any(word in path.read_bytes() for word in (b"/root/", b"/opt/", b"/home/")), path


def test_a_wrong_answer_is_noticed() -> None:
    """The negative control: the answer to one run is wrong for another, and doubt is not always right."""

    def both(name: str) -> tuple[dict[str, Any], Any]:
        return TRUTHS[name], diagnose(RUNS / name)

    held, store = both("nccl.native.all-reduce-hold-r1"), both("nccl.collector.all-reduce-store-death-r0")
    healthy, kernel = both("nccl.collector.all-reduce-none"), both("nccl.collector.all-reduce-gpu-kernel-r1")
    assert "innocent" in complaint(held[0], store[1])
    assert "innocent" in complaint(healthy[0], held[1])
    assert complaint(held[0], healthy[1], may_doubt=True)
    assert complaint(held[0], kernel[1])
    assert not complaint(held[0], kernel[1], may_doubt=True)


def test_the_files_are_those_of_the_manifest() -> None:
    for case in CASES:
        listed = json.loads((case / "evidence" / "manifest.json").read_text())["artifacts"]
        assert {one["path"]: one["bytes"] for one in listed} == {
            path.name: path.stat().st_size for path in (case / "evidence").iterdir() if path.name != "manifest.json"
        }
