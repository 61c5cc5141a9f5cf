"""nothing-left: after the teardown nothing of the drill is left on the machine."""

from hangdrill.checks.base import Answer, Check
from hangdrill.checks.hosts import lost_hosts, lost_on_purpose, unheard_hosts
from hangdrill.checks.words import list_text
from hangdrill.model.run import RecordedRun
from hangdrill.model.verdict import Verdict

__all__ = ["CHECK"]


def _judge(run: RecordedRun) -> Answer:
    if run.leftovers is None:
        return Answer(verdict=Verdict.UNKNOWN, detail="nobody looked for leftovers", mend="hangdrill clean")
    if run.leftovers:
        names = [f"{leftover.what} {leftover.name}" for leftover in run.leftovers]
        return Answer(verdict=Verdict.FAIL, detail=f"still there: {list_text(names)}", mend="hangdrill clean")
    lost = lost_hosts(run)
    unexpected = [status.host for status in lost if not lost_on_purpose(run, status)]
    if unexpected := [*unexpected, *unheard_hosts(run)]:
        detail = f"{list_text(unexpected)} was not heard of at the end, so nobody looked there"
        return Answer(verdict=Verdict.UNKNOWN, detail=detail, mend="hangdrill clean, on that host")
    if lost:
        detail = f"nothing is left; {list_text([status.host for status in lost])} was taken away, and not looked at"
        return Answer(verdict=Verdict.PASS, detail=detail)
    return Answer(verdict=Verdict.PASS, detail="no process, socket, mount, container or lock is left")


CHECK = Check(
    name="nothing-left",
    claim="No process, socket, mount, container, lock or temporary file of the drill is left.",
    judge=_judge,
)
