"""size: no dump is empty, and none is larger than the recorder's buffer can make it."""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import COLLECTED, artifact_path, expected_ranks, facts_at, hang_artifacts
from hangdrill.checks.place import FREE_SPACE, full_disk
from hangdrill.checks.words import range_text, size_text
from hangdrill.model.run import Artifact, RecordedRun

__all__ = ["CHECK", "limit_bytes"]

FIXED_BYTES = 64 * 1024
"""For the groups and their status."""
ENTRY_BYTES = 16 * 1024
"""For one operation with its stack frames; real ones are 0.3 to 4 KiB."""


def limit_bytes(run: RecordedRun) -> int:
    """The largest size that a full buffer can honestly have."""
    return FIXED_BYTES + ENTRY_BYTES * run.scenario.recorder.buffer_size


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    if not expected:
        return None
    findings = {rank: _judge_rank(run, rank) for rank in expected}
    sizes = [_size_bytes(run, artifact) or 0 for rank in expected for artifact in hang_artifacts(run, rank)]
    summary = f"{range_text(size_text(min(sizes)), size_text(max(sizes)))} a file" if sizes else ""
    return by_rank(findings, summary, "lower recorder.buffer_size, or find out who else writes there")


def _judge_rank(run: RecordedRun, rank: int) -> Finding:
    artifacts = hang_artifacts(run, rank)
    if not artifacts:
        return unknown("no dump arrived")
    for artifact in artifacts:
        size_bytes = _size_bytes(run, artifact)
        if size_bytes is None:
            return unknown(f"{artifact.path} was never inspected")
        if size_bytes == 0:
            full = full_disk(run)
            return failed(f"{artifact.path} is empty" + (f": {full}" if full else ""), FREE_SPACE if full else "")
        if size_bytes > limit_bytes(run):
            return failed(f"{artifact.path} has {size_text(size_bytes)}, more than {size_text(limit_bytes(run))}")
    return passed()


def _size_bytes(run: RecordedRun, artifact: Artifact) -> int | None:
    """The size on the disk, never the one that the writer claims."""
    facts = facts_at(run.files, artifact_path(run, artifact), COLLECTED)
    return facts.bytes if facts is not None and facts.exists else None


CHECK = Check(
    name="size",
    claim="Every dump has more than 0 bytes and at most 64 KiB plus 16 KiB for each entry of the buffer.",
    judge=_judge,
)
