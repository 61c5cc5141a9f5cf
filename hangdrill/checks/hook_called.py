"""hook-called: each hook of the scenario was called exactly once for the hang, and said that it took the news."""

from hangdrill.checks.base import Answer, Check
from hangdrill.checks.evidence import judged_attempt
from hangdrill.model.delivery import HookCall, HookKind
from hangdrill.model.run import RecordedRun
from hangdrill.model.verdict import Verdict, merge

__all__ = ["CHECK"]

_ABSENT = "install it where the collector runs, or name its whole path"
_DEAF = "run the hook by hand with what it was told; its output is in evidence/incident.json"


def _judge(run: RecordedRun) -> Answer | None:
    incident = run.scenario.incident
    if not incident.has_hook:
        return None
    if run.manifest is None:
        return Answer(verdict=Verdict.UNKNOWN, detail="no manifest, so nobody can tell whether there was a hang")
    calls = run.hook_calls.calls if run.hook_calls is not None else ()
    if run.manifest.noticed_ns is None:
        return _without_a_hang(run, calls)
    attempt = judged_attempt(run)
    kinds = [HookKind.COMMAND] * bool(incident.command) + [HookKind.WEBHOOK] * (incident.webhook is not None)
    answers = [_judge_kind(kind, [c for c in calls if c.kind is kind and c.attempt == attempt]) for kind in kinds]
    verdict = merge(answer.verdict for answer in answers)
    told = [answer for answer in answers if answer.verdict is verdict]
    return Answer(verdict=verdict, detail="; ".join(answer.detail for answer in told), mend=told[0].mend)


def _without_a_hang(run: RecordedRun, calls: tuple[HookCall, ...]) -> Answer:
    if calls:
        return Answer(verdict=Verdict.FAIL, detail=f"{calls[0].target} was called, and no hang was left standing")
    if run.scenario.fault.targets:
        return Answer(verdict=Verdict.UNKNOWN, detail="no hang was noticed, so no hook was put to the test")
    return Answer(verdict=Verdict.PASS, detail="no hang, and no call")


def _judge_kind(kind: HookKind, calls: list[HookCall]) -> Answer:
    if not calls:
        return Answer(verdict=Verdict.FAIL, detail=f"the {kind.value} was not called", mend="see collector.log")
    call = calls[0]
    if len(calls) > 1:
        detail = f"the {kind.value} {call.target} was called {len(calls)} times for one hang"
        return Answer(verdict=Verdict.FAIL, detail=detail, mend="give the hook to one host's collector only")
    if call.ended_ns is None:
        detail = f"the call of the {kind.value} {call.target} began, and nobody recorded its end"
        return Answer(verdict=Verdict.UNKNOWN, detail=detail)
    if not call.ok:
        said = f" (it said: {call.output[:200]})" if call.output else ""
        mend = _ABSENT if call.error.startswith("cannot be started: No such file") else _DEAF
        return Answer(verdict=Verdict.FAIL, detail=f"the {kind.value} {call.target}: {call.error}{said}", mend=mend)
    how = f"exit status {call.exit_status}" if kind is HookKind.COMMAND else f"HTTP status {call.http_status}"
    took_s = (call.ended_ns - call.started_ns) / 1e9
    return Answer(verdict=Verdict.PASS, detail=f"the {kind.value} {call.target} was called once: {how}, {took_s:.1f} s")


CHECK = Check(
    name="hook-called",
    claim="Each incident hook was called exactly once for the hang, and took the news; without a hang, none was.",
    judge=_judge,
)
