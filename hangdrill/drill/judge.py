"""From a run directory to a verdict: diagnose, check, merge, write result.json. Needs no process and no torch.

The same answer a week later: nothing here looks at the clock, the host or another directory.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from hangdrill.checks import run_checks
from hangdrill.checks.evidence import judged_attempt
from hangdrill.checks.fresh import stale_reason
from hangdrill.checks.own_dump import foreign_reason
from hangdrill.checks.words import ranks_text
from hangdrill.diagnosis import diagnose
from hangdrill.drill.evidence import read_artifacts
from hangdrill.drill.layout import RunLayout, write_json
from hangdrill.drill.store import load_run
from hangdrill.model.diagnosis import Diagnosis, HangKind, HangVerdict, UnreadableDump
from hangdrill.model.dump import Group
from hangdrill.model.errors import HangdrillError
from hangdrill.model.run import (
    AgentFacts,
    ArtifactKind,
    CheckResult,
    DrillResult,
    Environment,
    RankPull,
    RecordedRun,
    ResultArtifact,
    Timings,
)
from hangdrill.model.scenario import Scenario
from hangdrill.model.verdict import Verdict, merge
from hangdrill.report.sentence import drill_sentence

__all__ = ["failed_result", "judge"]

_COMPARED = (
    "python", "torch", "torch_git", "cuda", "nccl_loaded", "backend_requested", "backend_class", "device_binding",
    "placement",
)  # fmt: skip


def judge(run_dir: Path) -> DrillResult:
    """Judge a recorded run and write its result.json. UsageError when the directory is no run."""
    run = load_run(run_dir)
    problems: list[CheckResult] = []
    diagnosis = _diagnose(run, problems)
    run = msgspec.structs.replace(run, diagnosis=diagnosis)
    checks = (*_failures(run), *_run_checks(run, problems), *problems)
    result = DrillResult(
        scenario=run.scenario_name,
        verdict=merge(check.verdict for check in checks),
        checks=checks,
        diagnosis=diagnosis,
        expected_culprits=run.scenario.expect.expected_culprits,
        timings=_timings(run),
        environment=_environment(run),
        artifacts=_artifacts(run),
        sentence=drill_sentence(run) if diagnosis is not None else "",
        run_id=run.run_id,
    )
    write_json(RunLayout(run_dir.absolute()).result, result)
    return result


def failed_result(name: str, scenario: Scenario, error: HangdrillError) -> DrillResult:
    """The result of a drill that could not be run: UNKNOWN, with the error as its only check."""
    check = CheckResult(name="drill-ran", verdict=Verdict.UNKNOWN, detail=_headline(error), mend=error.next_step)
    return DrillResult(
        scenario=name,
        verdict=Verdict.UNKNOWN,
        checks=(check,),
        diagnosis=None,
        expected_culprits=scenario.expect.expected_culprits,
        timings=Timings(),
        environment=Environment(),
        artifacts=(),
    )


def _headline(error: HangdrillError) -> str:
    return f"{error.where}: {error.what}" if error.where else error.what


def _diagnose(run: RecordedRun, problems: list[CheckResult]) -> Diagnosis | None:
    """The diagnosis of the judged attempt, or None with the reason in `problems`."""
    attempt = judged_attempt(run)
    attempts = {f"{run.evidence_dir}/{artifact.path}": artifact.attempt for artifact in run.artifacts}
    dumps = [dump for own in run.dumps.values() for dump in own if attempts.get(dump.path, attempt) == attempt]
    fresh = [dump for dump in dumps if not (stale_reason(run, dump) or foreign_reason(run, dump))]
    stale = sorted({dump.rank for dump in dumps} - {dump.rank for dump in fresh})
    try:
        found = diagnose(
            fresh,
            world_size=run.scenario.job.world_size,
            reports=_reports(run, attempt),
            launch_groups=_launch_groups(run, attempt),
            unreadable=_unreadable(run, attempt),
            stale=tuple(stale),
        )
        return _unless_it_ran_on(found, run, attempt)
    except Exception as error:  # a crashed diagnosis knows nothing, whatever crashed it
        detail = f"the diagnosis itself failed: {type(error).__name__}: {error}"
        problems.append(CheckResult(name="diagnosis-ran", verdict=Verdict.UNKNOWN, detail=detail, mend=_REPORT_IT))
        return None


def _unless_it_ran_on(diagnosis: Diagnosis, run: RecordedRun, attempt: int) -> Diagnosis:
    """Dumps that were pulled from a running job one after the other may show a rank that has not come to what another
    is in. By its agent's count, taken when everything was in, it has: then nobody can be named. What it entered after
    it was released says nothing: where torch is alone that comes before everything is in."""
    released_ns = _released_ns(run)
    stuck, named = diagnosis.stuck, [culprit.rank for culprit in diagnosis.culprits]
    if diagnosis.kind is not HangKind.RANK_ABSENT or stuck is None or stuck.p2p or not named:
        return diagnosis
    entered = {
        agent.rank
        for agent in (*run.agents.values(), *run.earlier_agents)
        for group in agent.groups
        if agent.attempt == attempt
        and (group.name, group.desc) == (stuck.group.name, stuck.group.desc)
        and group.collectives >= stuck.sequence
        and (released_ns is None or group.last_operation_ns < released_ns)
    }
    went_on = [rank for rank in named if rank in entered]
    if not went_on:
        return diagnosis
    what = f"{stuck.op} #{stuck.sequence} of {stuck.group.desc or stuck.group.name}"
    note = f"{ranks_text(went_on)} entered {what} once their dumps were taken: the job went on"
    notes = (note, *diagnosis.notes)
    if set(went_on) == set(named):
        return msgspec.structs.replace(diagnosis, verdict=HangVerdict.UNDECIDED, kind=None, culprits=(), notes=notes)
    # The others stayed away all the same.
    left = tuple(culprit for culprit in diagnosis.culprits if culprit.rank not in entered)
    waiting = tuple(sorted({*stuck.waiting, *went_on}))
    absent = tuple(rank for rank in stuck.absent if rank not in entered)
    stuck = msgspec.structs.replace(stuck, waiting=waiting, absent=absent)
    return msgspec.structs.replace(diagnosis, culprits=left, stuck=stuck, notes=notes)


_REPORT_IT = "this is a bug in hangdrill: report it with the run directory"


def _run_checks(run: RecordedRun, problems: list[CheckResult]) -> tuple[CheckResult, ...]:
    try:
        return run_checks(run)
    except Exception as error:  # the checks guard themselves one by one; this is the last net
        detail = f"the checks themselves failed: {type(error).__name__}: {error}"
        problems.append(CheckResult(name="checks-ran", verdict=Verdict.UNKNOWN, detail=detail, mend=_REPORT_IT))
        return ()


def _failures(run: RecordedRun) -> tuple[CheckResult, ...]:
    """A drill that was interrupted, or that hangdrill failed, proves nothing of what it did not reach."""
    return tuple(
        CheckResult(name="drill-ran", verdict=Verdict.UNKNOWN, detail=f"{event.name}: {_text_of(event.detail)}")
        for event in run.journal
        if event.name in {"interrupted", "failed"}
    )


def _text_of(detail: dict[str, object]) -> str:
    return str(detail.get("why") or detail.get("error") or "")


def _reports(run: RecordedRun, attempt: int) -> tuple[RankPull, ...]:
    """What the collector saw of each rank, without ends that came after the release: a rank that was let go enters the
    operation that it was kept from, and fails in it, which says nothing of the hang."""
    released_ns = _released_ns(run)
    reports = () if run.manifest is None else run.manifest.ranks
    return tuple(
        msgspec.structs.replace(report, exit=None)
        if report.exit is not None and released_ns is not None and report.exit.time_ns >= released_ns
        else report
        for report in reports
        if report.attempt == attempt
    )


def _released_ns(run: RecordedRun) -> int | None:
    """When the first rank was let go; None when none was."""
    found = next((event.detail.get("from_ns") for event in run.journal if event.name == "released"), None)
    return found if isinstance(found, int) else None


def _launch_groups(run: RecordedRun, attempt: int) -> tuple[Group, ...]:
    agents = (*run.agents.values(), *run.earlier_agents)
    groups = {
        Group(name=group.name, desc=group.desc, ranks=group.ranks)
        for agent in agents
        if agent.attempt == attempt
        for group in agent.groups
    }
    return tuple(sorted(groups, key=lambda group: (group.name, group.desc, group.ranks)))


def _unreadable(run: RecordedRun, attempt: int) -> tuple[UnreadableDump, ...]:
    """Of the judged attempt, with what was saved of each; the record itself holds only texts."""
    if not run.unreadable:
        return ()
    return read_artifacts(
        Path(run.evidence_dir), (item for item in run.artifacts if item.attempt == attempt)
    ).unreadable


def _timings(run: RecordedRun) -> Timings:
    """A restarted job may be noticed twice; the journal says when the drill took notice: the first time."""
    elapsed_s = {event.name: event.elapsed_s for event in run.journal}
    attempt = judged_attempt(run)
    dumps_ns = [item.pulled_ns for item in run.artifacts if item.kind is ArtifactKind.DUMP and item.attempt == attempt]
    return Timings(
        launched_s=elapsed_s.get("launched"),
        hang_s=elapsed_s.get("fault-confirmed"),
        noticed_s=elapsed_s.get("noticed"),
        last_dump_s=_since_start_s(run, max(dumps_ns)) if dumps_ns else None,
        ended_s=elapsed_s.get("job-ended"),
        total_s=run.journal[-1].elapsed_s if run.journal else None,
    )


def _since_start_s(run: RecordedRun, time_ns: int) -> float:
    return round((time_ns - run.started_ns) / 1e9, 3)


def _environment(run: RecordedRun) -> Environment:
    """Of the lowest rank that reported; the others are named where they differ."""
    attempt = judged_attempt(run)
    agents = [agent for agent in (*run.agents.values(), *run.earlier_agents) if agent.attempt == attempt]
    if not agents:
        return Environment()
    first, *others = sorted(agents, key=lambda agent: agent.rank)
    values = {name: getattr(first, name) or None for name in _COMPARED}
    return Environment(**values, differs=tuple(text for other in others for text in _differences(first, other)))


def _differences(first: AgentFacts, other: AgentFacts) -> Iterable[str]:
    for name in _COMPARED:
        if name != "device_binding" and getattr(first, name) != getattr(other, name):
            yield f"rank {other.rank}: {name} {getattr(other, name)}"


def _artifacts(run: RecordedRun) -> tuple[ResultArtifact, ...]:
    root = run.run_dir + "/"
    return tuple(
        ResultArtifact(
            rank=artifact.rank,
            kind=artifact.kind,
            path=f"{run.evidence_dir}/{artifact.path}".removeprefix(root),
            bytes=artifact.bytes,
            sha256=artifact.sha256,
            road=artifact.road,
        )
        for artifact in run.artifacts
    )
