"""delivered: every artifact is where people look, with the manifest's sha256, as the controller read it back itself.

Judged by what was found when the drill was over (`delivered.json`): a later `hangdrill deliver` does not change it.
"""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import expected_ranks, judged_artifacts
from hangdrill.checks.words import count_text
from hangdrill.model.delivery import Delivered, DeliveredArtifact, Delivery, DeliveryState, ObjectFacts
from hangdrill.model.run import Artifact, RecordedRun
from hangdrill.model.verdict import Verdict, merge

__all__ = ["CHECK"]

_COMPLETE_IT = "once that is mended: hangdrill deliver RUN/evidence URL"


def _judge(run: RecordedRun) -> Answer | None:
    if run.scenario.recorder.deliver_to is None or not expected_ranks(run):
        return None
    found = run.delivered
    if found is None or not found.deliveries:
        why = found.problem if found is not None and found.problem else "nobody recorded a delivery"
        return Answer(verdict=Verdict.UNKNOWN, detail=why, mend="see collector.log")
    findings = {rank: _judge_rank(run, found, rank) for rank in expected_ranks(run)}
    total = sum(len(delivery.artifacts) for delivery in found.deliveries)
    where = ", ".join(delivery.prefix for delivery in found.deliveries)
    answer = by_rank(findings, f"{count_text(total, 'object')} read back from {where}")
    manifest = _judge_manifests(found)
    if manifest.verdict is Verdict.PASS:
        return answer
    told = [answer.detail] if answer.verdict is not Verdict.PASS else []
    return Answer(
        verdict=merge((answer.verdict, manifest.verdict)),
        ranks=answer.ranks,
        detail="; ".join([*told, manifest.text]),
        mend=answer.mend or manifest.mend,
    )


def _judge_rank(run: RecordedRun, found: Delivered, rank: int) -> Finding:
    artifacts = judged_artifacts(run, rank)
    if not artifacts:
        return unknown("nothing was collected, so nothing could be delivered")
    worst = [_judge_artifact(found, artifact) for artifact in artifacts]
    verdict = merge(finding.verdict for finding in worst)
    return next(finding for finding in worst if finding.verdict is verdict)


def _judge_artifact(found: Delivered, artifact: Artifact) -> Finding:
    last = artifact.path.rpartition("/")[2]
    for delivery in found.deliveries:
        for one in delivery.artifacts:
            if one.path == last and one.sha256 == artifact.sha256:
                return _judge_object(found, one)
    why = next((delivery.problem for delivery in found.deliveries if delivery.problem), "it was never taken on")
    return failed(f"{last} was not delivered: {why}", _COMPLETE_IT)


def _judge_object(found: Delivered, one: DeliveredArtifact) -> Finding:
    """A text without the file's name: the ranks with the same reason are told together."""
    if one.state is not DeliveryState.DELIVERED:
        why = one.last_error or one.state.value
        return failed(f"not delivered: {why}", f"{one.mend}; {_COMPLETE_IT}" if one.mend else _COMPLETE_IT)
    facts = next((each for each in found.objects or () if each.url == one.url), None)
    if facts is None:
        return unknown(found.problem or f"{one.path} was not read back")
    return _judge_facts(one, facts)


def _judge_facts(one: DeliveredArtifact, facts: ObjectFacts) -> Finding:
    match facts.exists:
        case None:
            return unknown(f"it was delivered, and could not be read back: {facts.error}")
        case False:
            mend = "see who deletes there: hangdrill retention URL"
            return failed(f"{one.path} was delivered, and is gone", mend)
        case True if (facts.bytes, facts.sha256) != (one.bytes, one.sha256):
            told = f"{facts.bytes} bytes, sha256 {facts.sha256[:12]}... instead of {one.sha256[:12]}..."
            return failed(f"{one.path} is another one than was delivered: {told}", "see who writes there")
    return passed()


def _judge_manifests(found: Delivered) -> Finding:
    """Where the manifest is, all is: people and programs rely on it."""
    worst = [_judge_manifest(found, delivery) for delivery in found.deliveries]
    verdict = merge(finding.verdict for finding in worst)
    return next(finding for finding in worst if finding.verdict is verdict)


def _judge_manifest(found: Delivered, delivery: Delivery) -> Finding:
    manifests = [one for one in delivery.artifacts if one.path.startswith("manifest.")]
    if not manifests:
        if any(one.state is not DeliveryState.DELIVERED for one in delivery.artifacts):
            return failed("so the manifest was not delivered either")
        return failed("the manifest was not delivered", _COMPLETE_IT)
    return _judge_object(found, manifests[-1])


CHECK = Check(
    name="delivered",
    claim="Every artifact, and after them the manifest, is at recorder.deliver_to with the sha256 that was collected.",
    judge=_judge,
)
