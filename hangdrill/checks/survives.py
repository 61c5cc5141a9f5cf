"""survives-<teardown>: the evidence is still there, the same in every byte, owner and mode, after the teardown named.

One check for each teardown of a scenario's expect.survives. A restart is not among them: restart-kept judges that.
"""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import COLLECTED, absence, expected_ranks, facts_at, files_of, is_inside, judged_attempt
from hangdrill.checks.place import describe_layer
from hangdrill.checks.words import count_text
from hangdrill.model.run import FileFacts, RecordedRun
from hangdrill.model.scenario import Teardown, Trigger

__all__ = ["CHECKS"]

TEARDOWNS = tuple(teardown for teardown in Teardown if teardown is not Teardown.RESTART)


def _judge(run: RecordedRun, teardown: Teardown) -> Answer | None:
    expected = expected_ranks(run)
    if not expected or teardown not in run.scenario.expect.survives:
        return None
    findings = {rank: _judge_rank(run, rank, teardown) for rank in expected}
    total = sum(len(_collected(run, rank)) for rank in expected)
    return by_rank(
        findings,
        f"{count_text(total, 'file')} unchanged after {teardown.value}",
        "keep the evidence where the teardown does not reach: see docs/reference/checks.md",
    )


def _judge_rank(run: RecordedRun, rank: int, teardown: Teardown) -> Finding:
    before = _collected(run, rank)
    if not before:
        return unknown(absence(run, rank))
    for facts in before:
        after = facts_at(run.files, facts.path, teardown.value)
        name = facts.path.rsplit("/", maxsplit=1)[-1]
        if after is None:
            return unknown(f"{name} was not looked at again after {teardown.value}")
        if after.unseen:
            return unknown(f"{name} is out of reach after {teardown.value}: {after.unseen}")
        if not after.exists:
            return _gone(run, after, teardown)
        changed = _changes(facts, after)
        if changed:
            return failed(f"{name} has changed after {teardown.value}: {', '.join(changed)}")
    return passed()


def _gone(run: RecordedRun, facts: FileFacts, teardown: Teardown) -> Finding:
    """Says so when the place itself could not survive."""
    path = facts.path
    directory, _, name = path.rpartition("/")
    if facts.place:
        return failed(
            f"{name} is gone after {teardown.value}: {directory} is in {facts.place}",
            "let recorder.dump_to name a directory that all nodes share, or leave it out: the run directory is shared",
        )
    layer = "" if is_inside(path, run.run_dir) else describe_layer(run, directory)
    if not layer:
        return failed(f"{name} is gone after {teardown.value}")
    return failed(
        f"{name} is gone after {teardown.value}: {layer}",
        "let job.volumes mount a volume there, or leave recorder.dump_to out: the run directory is mounted",
    )


def _collected(run: RecordedRun, rank: int) -> list[FileFacts]:
    """What must survive: with the collector its own directory; on the other roads also the file that torch wrote."""
    attempt = judged_attempt(run)
    only_collected = run.scenario.recorder.trigger is Trigger.COLLECTOR
    return [
        facts
        for facts in files_of(run, rank)
        if facts.when == COLLECTED
        and facts.attempt == attempt
        and facts.exists
        and (not only_collected or is_inside(facts.path, run.evidence_dir))
    ]


def _changes(before: FileFacts, after: FileFacts) -> list[str]:
    changes = [] if before.sha256 == after.sha256 else ["sha256"]
    changes += [] if before.uid == after.uid else [f"owner {after.uid} instead of {before.uid}"]
    changes += (
        [] if before.mode == after.mode else [f"mode {after.mode & 0o7777:04o} instead of {before.mode & 0o7777:04o}"]
    )
    changes += [] if before.bytes == after.bytes else [f"{after.bytes} bytes instead of {before.bytes}"]
    return changes


def _check_of(teardown: Teardown) -> Check:
    return Check(
        name=f"survives-{teardown.value}",
        claim=f"After {teardown.value} the evidence is still there: the same bytes, sha256, owner and mode.",
        judge=lambda run: _judge(run, teardown),
    )


CHECKS: tuple[Check, ...] = tuple(_check_of(teardown) for teardown in TEARDOWNS)
