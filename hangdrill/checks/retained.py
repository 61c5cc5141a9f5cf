"""retained: nothing that is known to delete there deletes the evidence before recorder.keep_days is over."""

from hangdrill.checks.base import Answer, Check
from hangdrill.model.delivery import Deletion, KeptPlace
from hangdrill.model.run import RecordedRun
from hangdrill.model.verdict import Verdict, merge

__all__ = ["CHECK", "judge_places"]


def _judge(run: RecordedRun) -> Answer | None:
    promised = run.scenario.recorder.keep_days
    if promised is None:
        return None
    found = run.delivered
    if found is None or found.kept is None:
        why = found.problem if found is not None and found.problem else "nobody looked how long it is kept"
        return Answer(verdict=Verdict.UNKNOWN, detail=why)
    return judge_places(promised, found.kept)


def judge_places(promised_days: float, places: tuple[KeptPlace, ...]) -> Answer:
    """The promise against what is known of the places. Also for `hangdrill retention`."""
    answers = [_judge_place(promised_days, place) for place in places]
    verdict = merge(answer.verdict for answer in answers)
    told = [answer for answer in answers if answer.verdict is verdict]
    return Answer(verdict=verdict, detail="; ".join(answer.detail for answer in told), mend=told[0].mend)


def _judge_place(promised_days: float, place: KeptPlace) -> Answer:
    promise = f"{promised_days:g} days are promised"
    if place.locked_days is not None and place.locked_days >= promised_days:
        detail = f"{place.place}: an object lock keeps every object {place.locked_days:g} days, {promise}"
        return Answer(verdict=Verdict.PASS, detail=detail)
    early = [rule for rule in place.deletions if rule.after_days is not None and rule.after_days < promised_days]
    if early:
        rule = min(early, key=lambda rule: rule.after_days or 0.0)
        return Answer(
            verdict=Verdict.FAIL,
            detail=f"{promise}, but {_words(rule)}, in {place.place}",
            mend="change that rule, promise less (recorder.keep_days), or keep it elsewhere (recorder.deliver_to)",
        )
    unsure = [rule for rule in place.deletions if rule.after_days is None]
    if unsure:
        detail = f"{promise}, and nobody can tell when {_words(unsure[0])}, in {place.place}"
        return Answer(verdict=Verdict.UNKNOWN, detail=detail, mend="keep it elsewhere (recorder.deliver_to)")
    if not place.told:
        return Answer(
            verdict=Verdict.UNKNOWN,
            detail=f"{promise}, and nobody tells what {place.place} keeps: {place.why}",
            mend="look at its rules yourself, and give hangdrill the right to read them where it can",
        )
    return Answer(
        verdict=Verdict.PASS, detail=f"{promise}, and nothing known deletes earlier in {place.place} ({place.why})"
    )


def _words(rule: Deletion) -> str:
    days = f" after {rule.after_days:g} days" if rule.after_days is not None else ""
    return f"{rule.source} {rule.text}{days}"


CHECK = Check(
    name="retained",
    claim="No rule that is known deletes the evidence before recorder.keep_days is over.",
    judge=_judge,
)
