"""owner-and-mode: the files of evidence belong to the user of the drill, and nobody else can read them.

torch writes its own files with mode 0644. Inside the run directory, which is 0700, that lets nobody in and is a remark;
elsewhere it is a failure.
"""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import (
    COLLECTED,
    absence,
    artifact_path,
    expected_ranks,
    facts_at,
    hang_artifacts,
    is_inside,
    native_path,
)
from hangdrill.model.run import FileFacts, RecordedRun

__all__ = ["CHECK"]

OTHERS = 0o077
"""Any right of the group or of others."""


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    if not expected:
        return None
    findings = {rank: _judge_rank(run, rank) for rank in expected}
    return by_rank(
        findings,
        f"all files belong to uid {run.uid}, and nobody else can read them",
        "put recorder.dump_to below a directory of mode 0700, or leave it out",
    )


def _judge_rank(run: RecordedRun, rank: int) -> Finding:
    found = _files(run, rank)
    if not found:
        return unknown("no file was inspected" if hang_artifacts(run, rank) else absence(run, rank))
    for facts in found:
        problem = _problem(run, facts)
        if problem:
            return failed(problem)
    open_native = [facts for facts in found if facts.mode & OTHERS]
    return passed(
        f"torch's own file has mode {_mode(open_native[0])}, kept by the run directory" if open_native else ""
    )


def _files(run: RecordedRun, rank: int) -> list[FileFacts]:
    """The inspected files of the rank: what the manifest names, and torch's own file."""
    paths = [artifact_path(run, artifact) for artifact in hang_artifacts(run, rank)]
    paths.append(native_path(run, rank))
    found = (facts_at(run.files, path, COLLECTED) for path in dict.fromkeys(paths))
    return [facts for facts in found if facts is not None and facts.exists]


def _problem(run: RecordedRun, facts: FileFacts) -> str:
    if facts.uid != run.uid:
        return f"{facts.path} belongs to uid {facts.uid} instead of {run.uid}"
    if not facts.mode & OTHERS:
        return ""
    is_native = facts.path == native_path(run, facts.rank)
    if is_native and is_inside(facts.path, run.run_dir):
        return ""
    return f"{facts.path} has mode {_mode(facts)}, so others can reach it"


def _mode(facts: FileFacts) -> str:
    return f"{facts.mode & 0o7777:04o}"


CHECK = Check(
    name="owner-and-mode",
    claim="Every dump belongs to the user of the drill and is out of the reach of everybody else.",
    judge=_judge,
)
