"""restart-kept: a restart of the job does not overwrite the evidence of the attempt before it.

torch's own file has the same name in every attempt, so a restarted job writes over the dump that was worth keeping.
"""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import COLLECTED, HISTORY_KINDS, artifact_path, expected_ranks, files_of
from hangdrill.checks.words import count_text
from hangdrill.model.run import Artifact, FileFacts, RecordedRun
from hangdrill.model.scenario import Teardown
from hangdrill.model.verdict import Verdict

__all__ = ["CHECK"]


def _judge(run: RecordedRun) -> Answer | None:
    expected = expected_ranks(run)
    restarts = run.scenario.job.max_restarts > 0 or Teardown.RESTART in run.scenario.expect.survives
    if not expected or not restarts:
        return None
    attempts = _earlier_attempts(run)
    if not attempts:
        return Answer(verdict=Verdict.UNKNOWN, detail="the job was never restarted, so nothing was put to the test")
    findings = {rank: _judge_rank(run, rank, attempts) for rank in expected}
    kept = count_text(len(attempts), "earlier attempt")
    return by_rank(
        findings,
        f"the evidence of {kept} is still there, unchanged",
        'torch gives every attempt the same file name: use trigger = "collector"',
    )


def _earlier_attempts(run: RecordedRun) -> list[int]:
    """Attempts before the last one, by what the agents reported."""
    reported = {agent.attempt for agent in (*run.agents.values(), *run.earlier_agents)}
    reported |= {report.attempt for report in run.faults}
    return sorted(reported)[:-1]


def _judge_rank(run: RecordedRun, rank: int, attempts: list[int]) -> Finding:
    for attempt in attempts:
        artifacts = [
            item
            for item in run.artifacts
            if item.rank == rank and item.attempt == attempt and item.kind in HISTORY_KINDS
        ]
        if not artifacts:
            return failed(f"attempt {attempt} left no dump")
        for artifact in artifacts:
            finding = _judge_artifact(run, artifact)
            if finding.verdict is not Verdict.PASS:
                return finding
    return passed()


def _judge_artifact(run: RecordedRun, artifact: Artifact) -> Finding:
    facts = _last_facts(run, artifact)
    if facts is None:
        return unknown(f"{artifact.path} was not inspected after the restart")
    if not facts.exists:
        return failed(f"{artifact.path} of attempt {artifact.attempt} is gone")
    if facts.sha256 != artifact.sha256:
        return failed(f"{artifact.path} of attempt {artifact.attempt} was overwritten")
    return passed()


def _last_facts(run: RecordedRun, artifact: Artifact) -> FileFacts | None:
    """The last inspection of a file. The one at "collected" came before the restart and proves nothing of it."""
    path = artifact_path(run, artifact)
    return next(
        (facts for facts in reversed(files_of(run, artifact.rank)) if facts.path == path and facts.when != COLLECTED),
        None,
    )


CHECK = Check(
    name="restart-kept",
    claim="After a restart of the job the dumps of the attempts before it are still there, unchanged.",
    judge=_judge,
)
