"""hash: the files on the disk are byte for byte what the collector wrote: their sha256 is the manifest's."""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import COLLECTED, absence, artifact_path, expected_ranks, facts_at, judged_artifacts
from hangdrill.checks.words import count_text
from hangdrill.model.run import Artifact, RecordedRun

__all__ = ["CHECK"]


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    if not expected:
        return None
    findings = {rank: _judge_rank(run, rank) for rank in expected}
    total = sum(len(_artifacts(run, rank)) for rank in expected)
    return by_rank(
        findings,
        f"{count_text(total, 'file')} with the sha256 that the manifest gives",
        "something wrote to the evidence after it was collected: keep others out of it",
    )


def _judge_rank(run: RecordedRun, rank: int) -> Finding:
    artifacts = _artifacts(run, rank)
    if not artifacts:
        return unknown(absence(run, rank))
    for artifact in artifacts:
        facts = facts_at(run.files, artifact_path(run, artifact), COLLECTED)
        if facts is None or not artifact.sha256:
            return unknown(f"{artifact.path} was never hashed")
        if not facts.exists:
            return failed(f"{artifact.path} is gone")
        if facts.sha256 != artifact.sha256:
            return failed(
                f"{artifact.path} has changed: sha256 {facts.sha256[:12]}... instead of {artifact.sha256[:12]}..."
            )
    return passed()


def _artifacts(run: RecordedRun, rank: int) -> tuple[Artifact, ...]:
    """All kinds: also stacks and process states are evidence."""
    return judged_artifacts(run, rank)


CHECK = Check(
    name="hash",
    claim="Every collected file has the sha256 that the manifest gives.",
    judge=_judge,
)
