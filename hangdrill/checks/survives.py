"""survives-<teardown>: the evidence is still there, the same in every byte, owner and mode, after the teardown named.

One check for each teardown of a scenario's expect.survives. A restart is not among them: restart-kept judges that.
"""

from hangdrill.checks.base import Answer, Check, Finding, by_rank, failed, passed, unknown
from hangdrill.checks.evidence import COLLECTED, absence, expected_ranks, facts_at, files_of, is_inside, judged_attempt
from hangdrill.checks.place import describe_layer
from hangdrill.checks.words import count_text, size_text
from hangdrill.model.run import FileFacts, MemoryFacts, RecordedRun
from hangdrill.model.scenario import Teardown, Trigger
from hangdrill.model.verdict import Verdict

__all__ = ["CHECKS"]

TEARDOWNS = tuple(teardown for teardown in Teardown if teardown is not Teardown.RESTART)


def _judge(run: RecordedRun, teardown: Teardown) -> Answer | None:
    expected = expected_ranks(run)
    if not expected or teardown not in run.scenario.expect.survives:
        return None
    if teardown is Teardown.OOM_KILL and (doubt := _no_oom_kill(run.memory)):
        return Answer(verdict=Verdict.UNKNOWN, detail=doubt, mend="lower job.memory, or look at the host's cgroups")
    if teardown is Teardown.HOST_LOSS and (doubt := _no_host_loss(run)):
        return Answer(verdict=Verdict.UNKNOWN, detail=doubt, mend="see nodes/ in the run directory")
    findings = {rank: _judge_rank(run, rank, teardown) for rank in expected}
    total = sum(len(_collected(run, rank)) for rank in expected)
    return by_rank(
        findings,
        f"{count_text(total, 'file')} unchanged after {teardown.value}{_kills_text(run, teardown)}",
        "keep the evidence where the teardown does not reach: see docs/reference/checks.md",
    )


def _no_oom_kill(memory: MemoryFacts | None) -> str:
    """Why nothing proves that the kernel's OOM killer struck; "" when something does."""
    if memory is None:
        return "nobody drove the container over its memory limit, so nothing was survived"
    if memory.kills and not memory.kills_of_job:
        return "the kernel's OOM killer struck, but no rank: they had ended before, or only torchrun was chosen"
    if memory.kills or (memory.kills is None and memory.oom_killed):
        return "" if memory.container_over else "the OOM killer struck, but the container lived on"
    limit = "no limit is set" if memory.limit_bytes is None else f"the limit is {size_text(memory.limit_bytes)}"
    over = "; the container was over before" if memory.container_over and memory.kills is None else ""
    return f"the kernel's OOM killer did not strike: {limit}{over}"


def _no_host_loss(run: RecordedRun) -> str:
    """Why nothing proves that the last host was lost; "" when it left without a last word."""
    last = run.scenario.job.nnodes - 1
    status = next((status for status in run.nodes if status.node == last), None)
    if status is None:
        return f"nothing is known of node {last}, so nobody can tell that it was lost"
    if status.state == "finished":
        why = f": {status.problem}" if status.problem else ""
        return f"{status.host} was to be lost, and ended in good order, so nothing was survived{why}"
    return ""


def _kills_text(run: RecordedRun, teardown: Teardown) -> str:
    memory = run.memory
    if teardown is not Teardown.OOM_KILL or memory is None:
        return ""
    ranks = f"killed {count_text(memory.kills_of_job, 'rank')}" if memory.kills else "struck, by the engine's word"
    return f": the OOM killer {ranks}, and the container ended with {memory.exit_code}"


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
