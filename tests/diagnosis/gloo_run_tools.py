"""The real gloo jobs of tests/data/gloo_runs: their truth, what is wrong with an answer, and how to spoil the files."""

import json
import pickle
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hangdrill.model.diagnosis import Culprit, Diagnosis, HangVerdict, StuckOperation
from hangdrill.recorder import Evidence

__all__ = [
    "CASES",
    "RUNS",
    "answer",
    "as_version_2_9",
    "bare_dumps",
    "complaint",
    "copy_of",
    "files_of",
    "hold_to",
    "shuffled",
    "truth_of",
]

RUNS = Path(__file__).parents[1] / "data" / "gloo_runs"
CASES = sorted(path.parent for path in RUNS.glob("*/truth.json"))


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
