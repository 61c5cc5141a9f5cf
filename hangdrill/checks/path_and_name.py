"""path-and-name: each dump lies where it should, and no two ranks share a file.

Native files have the exact prefix and the rank as their name, collected ones lie in the evidence directory under the
name that the manifest gives.
"""

from collections import Counter

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import (
    COLLECTED,
    artifact_path,
    expected_ranks,
    facts_at,
    hang_artifacts,
    is_inside,
    native_path,
)
from hangdrill.model.run import Artifact, RecordedRun
from hangdrill.model.scenario import Trigger

__all__ = ["CHECK"]

NATIVE_ROADS = ("native", "debug-server")
MEND = "TORCH_FR_DUMP_TEMP_FILE sets the prefix; TORCH_FR_DUMP_DYNAMIC_FILE_NAME=1 drops the rank from the name"


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    if not expected:
        return None
    uses = Counter(path for path, _ in {(artifact_path(run, item), item.rank) for item in run.artifacts})
    findings = {rank: _judge_rank(run, rank, uses) for rank in expected}
    return by_rank(findings, "every file is where the manifest says, under a name of its own", MEND)


def _judge_rank(run: RecordedRun, rank: int, uses: Counter[str]) -> Finding:
    artifacts = hang_artifacts(run, rank)
    if not artifacts:
        return unknown("no dump arrived")
    for artifact in artifacts:
        problem = _misplaced(run, artifact, uses)
        if problem is not None:
            return problem
    if run.scenario.recorder.trigger is not Trigger.COLLECTOR:
        return _judge_native(run, rank)
    return passed()


def _misplaced(run: RecordedRun, artifact: Artifact, uses: Counter[str]) -> Finding | None:
    path = artifact_path(run, artifact)
    if uses[path] > 1:
        return failed(f"{artifact.path} is claimed by more than one rank")
    is_native_file = artifact.road in NATIVE_ROADS and path == native_path(run, artifact.rank)
    if not is_native_file and not is_inside(path, run.evidence_dir):
        return failed(f"{artifact.path} lies outside the evidence directory")
    facts = facts_at(run.files, path, COLLECTED)
    if facts is None:
        return unknown(f"{artifact.path} was never inspected")
    return None if facts.exists else failed(f"{artifact.path} is in the manifest but not on the disk")


def _judge_native(run: RecordedRun, rank: int) -> Finding:
    """The road that is drilled writes by itself: its own file must have the exact name."""
    path = native_path(run, rank)
    facts = facts_at(run.files, path, COLLECTED)
    if facts is None:
        return unknown(f"{path} was never inspected")
    return passed() if facts.exists else failed(f"there is no {path}, though a dump of this rank arrived")


CHECK = Check(
    name="path-and-name",
    claim="Native dumps lie at exactly the prefix + rank, collected ones inside the evidence directory, as listed.",
    judge=_judge,
)
