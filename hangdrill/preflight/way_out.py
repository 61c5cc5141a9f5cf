"""Would the evidence reach its target and stay as long as promised, and would anybody be told? Writes nothing."""

import shutil
from collections.abc import Iterator, Mapping

from hangdrill.checks.retained import judge_places
from hangdrill.delivery.inspection import Question, ask
from hangdrill.delivery.opening import is_local, local_path
from hangdrill.delivery.retention import What
from hangdrill.model.delivery import KeptPlace
from hangdrill.model.preflight import Finding
from hangdrill.model.scenario import Scenario, Trigger
from hangdrill.model.verdict import Verdict
from hangdrill.preflight.catalogue import found
from hangdrill.preflight.surroundings import Surroundings, WayOut

__all__ = ["look_at_way_out", "way_out_findings"]

LOOK_S = 8.0
PLACES = (
    ("the package", "deliver-package-missing"),
    ("there are no credentials", "deliver-refused"),
    ("the store refuses", "deliver-refused"),
    ("this user may not", "deliver-refused"),
)


def look_at_way_out(scenario: Scenario, environ: Mapping[str, str], evidence: str) -> WayOut:
    """Asks the store in a process of its own. evidence: where it is kept when nothing is delivered."""
    recorder, incident = scenario.recorder, scenario.incident
    url = recorder.deliver_to
    if url is not None and is_local(url):
        url = str(local_path(url))
    problem, mend = "", ""
    kept: tuple[KeptPlace, ...] = ()
    if recorder.trigger is Trigger.COLLECTOR and (url is not None or recorder.keep_days is not None):
        place: tuple[str, What] = (evidence, "evidence") if url is None else (url, "delivered")
        places = (place,) if recorder.keep_days is not None else ()
        question = Question(look=url or "", kept=places, within_s=LOOK_S)
        answer = ask(question, environ)
        problem, _, mend = answer.problem.partition("\n")
        kept = answer.kept or ()
    command = incident.command[0] if incident.command else ""
    webhook = incident.webhook or ""
    return WayOut(
        deliver_to=url,
        problem=problem,
        mend=mend,
        keep_days=recorder.keep_days,
        kept=kept,
        hook_missing=command if command and shutil.which(command, path=environ.get("PATH")) is None else "",
        webhook_unset=webhook if webhook.startswith("$") and not environ.get(webhook[1:]) else "",
    )


def way_out_findings(facts: Surroundings) -> Iterator[Finding]:
    """All of this family."""
    way = facts.way_out
    if way.problem:
        id_ = next((id_ for words, id_ in PLACES if way.problem.startswith(words)), "deliver-not-reached")
        what = f"the evidence would stay on this host: {way.problem}"
        yield found(id_, what=what, where=way.deliver_to or "recorder.deliver_to", mend=way.mend or "check the URL")
    if way.keep_days is not None:
        answer = judge_places(way.keep_days, way.kept) if way.kept else None
        if answer is None or answer.verdict is not Verdict.PASS:
            id_ = "retention-too-short" if answer and answer.verdict is Verdict.FAIL else "retention-not-known"
            what = answer.detail if answer else "nobody could be asked how long the evidence is kept"
            mend = (answer.mend if answer else "") or "look at the rules of that place yourself"
            yield found(id_, what=what, where="recorder.keep_days", mend=mend)
    if way.hook_missing:
        what = f"{way.hook_missing} is not there, or may not be run: nobody would be told of a hang"
        mend = "install it where the collector runs, or name its whole path"
        yield found("hook-command-missing", what=what, where="incident.command", mend=mend)
    if way.webhook_unset:
        what = f"{way.webhook_unset} is not set: nobody would be told of a hang"
        mend = f"export {way.webhook_unset[1:]}=https://... where the collector runs"
        yield found("hook-webhook-not-set", what=what, where="incident.webhook", mend=mend)
