"""Look-ups that several checks need: which attempt is judged, and what evidence a rank left of the hang. Pure.

Everything starts from the expected ranks of the scenario, never from the files that exist.
"""

import msgspec

from hangdrill.checks.hosts import host_fault
from hangdrill.checks.index import Index
from hangdrill.model.dump import RankDump
from hangdrill.model.run import (
    AgentFacts,
    Artifact,
    ArtifactKind,
    FaultReport,
    FileFacts,
    PullReason,
    RankPull,
    RecordedRun,
)
from hangdrill.model.scenario import FaultKind

__all__ = [
    "BEFORE",
    "COLLECTED",
    "absence",
    "artifact_of",
    "artifact_path",
    "best_dump",
    "confirmed_ns",
    "dumps_of",
    "expected_ranks",
    "facts_at",
    "fault_reports",
    "fault_took",
    "files_of",
    "hang_artifacts",
    "is_inside",
    "judged_agents",
    "judged_artifacts",
    "judged_attempt",
    "judged_dumps",
    "judged_reports",
    "made_ns",
    "native_path",
    "somebody_looked",
]

BEFORE, COLLECTED = "before", "collected"
"""Inspections: of files that were there before the job was started; and right after the evidence was collected, before
any teardown."""

INSPECTED = "inspected"
"""The journal's event of an inspection; its detail's `when` names it."""

_ARTIFACTS_BY_RANK = Index[Artifact](lambda artifact: artifact.rank)
_FILES_BY_PLACE = Index[FileFacts](lambda facts: (facts.path, facts.when))
_FILES_BY_RANK = Index[FileFacts](lambda facts: facts.rank)

HISTORY_KINDS = (ArtifactKind.DUMP, ArtifactKind.TRACE)


def expected_ranks(run: RecordedRun) -> tuple[int, ...]:
    """The ranks that must leave evidence, from the scenario alone."""
    world_size = run.scenario.job.world_size
    match run.scenario.expect.dumps:
        case "all":
            return tuple(range(world_size))
        case "none":
            return ()
        case ranks:
            return tuple(sorted(rank for rank in set(ranks) if 0 <= rank < world_size))


def judged_attempt(run: RecordedRun) -> int:
    """The first attempt in which the fault took: its evidence was collected, what came after is the restart put to the
    test. Without any report, the first attempt. Whoever fills RecordedRun.dumps must include this attempt's."""
    return min((report.attempt for report in run.faults), default=0)


def judged_agents(run: RecordedRun) -> dict[int, AgentFacts]:
    """What the agents of the judged attempt reported, by rank."""
    attempt = judged_attempt(run)
    every_agent = (*run.agents.values(), *run.earlier_agents)
    return {agent.rank: agent for agent in every_agent if agent.attempt == attempt}


def fault_reports(run: RecordedRun) -> tuple[FaultReport, ...]:
    """The reports of the judged attempt."""
    attempt = judged_attempt(run)
    return tuple(report for report in run.faults if report.attempt == attempt)


def fault_took(run: RecordedRun) -> bool:
    """Whether every target reported its fault; with no fault there is nothing to wait for."""
    if run.scenario.fault.kind is FaultKind.NONE:
        return True
    if run.scenario.fault.on_host:
        return host_fault(run) is not None
    return set(run.scenario.fault.targets) <= {report.rank for report in fault_reports(run)}


def confirmed_ns(run: RecordedRun) -> int | None:
    """When the fault was there on all it was placed on, by the controller's clock; None when it never was.

    Of a host's fault the journal tells it: a host's own clock is compared with no other.
    """
    if not fault_took(run):
        return None
    if run.scenario.fault.on_host:
        return next((event.time_ns for event in run.journal if event.name == "fault-confirmed"), None)
    return max((report.time_ns for report in fault_reports(run)), default=None)


def somebody_looked(run: RecordedRun) -> bool:
    """Whether anybody looked for evidence at all: else what is missing proves nothing."""
    return run.manifest is not None or any(facts.when == COLLECTED for facts in run.files)


def artifact_path(run: RecordedRun, artifact: Artifact) -> str:
    """The artifact's absolute path."""
    return artifact.path if artifact.path.startswith("/") else f"{run.evidence_dir}/{artifact.path}"


def native_path(run: RecordedRun, rank: int) -> str:
    """Where torch itself writes this rank's dump."""
    return f"{run.dump_prefix}{rank}"


def is_inside(path: str, directory: str) -> bool:
    """Whether an absolute path lies below a directory, by its text alone."""
    return path.startswith(directory.rstrip("/") + "/") and ".." not in path.split("/")


def judged_artifacts(run: RecordedRun, rank: int) -> tuple[Artifact, ...]:
    """All that a rank left in the judged attempt. What came after the inspection was never looked at: the teardown had
    begun, and the counts of the agents were already read."""
    attempt, inspected_ns = judged_attempt(run), _inspected_ns(run)
    return tuple(
        artifact
        for artifact in _ARTIFACTS_BY_RANK.find(run.artifacts, rank)
        if artifact.attempt == attempt and (inspected_ns is None or artifact.pulled_ns <= inspected_ns)
    )


def hang_artifacts(run: RecordedRun, rank: int) -> tuple[Artifact, ...]:
    """The dumps and traces of a rank that were taken because of the hang, in the judged attempt, before the inspection.

    One that was taken at an orderly exit counts if a hang was noticed and the rank left nothing else: a rank that
    leaves early is how some hangs begin. Without a hang it is proof of health, no more.
    """
    found = tuple(artifact for artifact in judged_artifacts(run, rank) if artifact.kind in HISTORY_KINDS)
    of_hang = tuple(artifact for artifact in found if artifact.reason is not PullReason.EXIT)
    return of_hang or (found if _hang_was_noticed(run) else ())


def _inspected_ns(run: RecordedRun) -> int | None:
    """When the first inspection was over, by the journal; None when it does not say."""
    times_ns = (
        event.time_ns for event in run.journal if event.name == INSPECTED and event.detail.get("when") == COLLECTED
    )
    return next(times_ns, None)


def _hang_was_noticed(run: RecordedRun) -> bool:
    return run.manifest is not None and run.manifest.noticed_ns is not None


def artifact_of(run: RecordedRun, dump: RankDump) -> Artifact | None:
    """The artifact that a parsed dump came from; a native file and its copy are one artifact."""
    own = _ARTIFACTS_BY_RANK.find(run.artifacts, dump.rank)
    for artifact in own:
        if dump.path in (artifact.path, artifact_path(run, artifact)):
            return artifact
    if dump.path == native_path(run, dump.rank):
        return next((item for item in own if item.road == "native"), None)
    return None


def judged_dumps(run: RecordedRun) -> tuple[RankDump, ...]:
    """All parsed dumps that a diagnosis may use: of the judged attempt, taken before the inspection.

    A rank that is let go in the teardown enters what it never entered in the hang: what it leaves then is no evidence.
    """
    found = ((dump, artifact_of(run, dump)) for dumps in run.dumps.values() for dump in dumps)
    return tuple(
        dump for dump, artifact in found if artifact is None or artifact in judged_artifacts(run, artifact.rank)
    )


def judged_reports(run: RecordedRun) -> tuple[RankPull, ...]:
    """What the collector saw of each rank in the judged attempt, without the exits that came after the inspection."""
    attempt, inspected_ns = judged_attempt(run), _inspected_ns(run)
    reports = run.manifest.ranks if run.manifest is not None else ()
    return tuple(
        msgspec.structs.replace(report, exit=None)
        if report.exit is not None and inspected_ns is not None and report.exit.time_ns > inspected_ns
        else report
        for report in reports
        if report.attempt == attempt
    )


def dumps_of(run: RecordedRun, rank: int) -> tuple[RankDump, ...]:
    """A rank's parsed dumps of the hang, the richest first. One that no artifact belongs to is judged too."""
    judged = hang_artifacts(run, rank)
    found = ((dump, artifact_of(run, dump)) for dump in run.dumps.get(rank, ()))
    return tuple(dump for dump, artifact in found if artifact is None or artifact in judged)


def absence(run: RecordedRun, rank: int) -> str:
    """Why there is no dump of a rank to judge, in the same words in every check."""
    return "no dump arrived" if not hang_artifacts(run, rank) else "no dump that parses"


def made_ns(run: RecordedRun, artifact: Artifact) -> int:
    """When the evidence was made. A native file is copied after the job's end: its own time says when it was written,
    if that lies within the run."""
    if artifact.road in ("native", "debug-server"):
        facts = facts_at(run.files, native_path(run, artifact.rank), COLLECTED)
        if facts is not None and facts.exists and run.started_ns <= facts.mtime_ns <= artifact.pulled_ns:
            return facts.mtime_ns
    return artifact.pulled_ns


def best_dump(run: RecordedRun, rank: int) -> RankDump | None:
    """The rank's dump that says most: a full history before active operations only, an unbroken one before a cut one,
    more operations before fewer; else the order of the record."""
    dumps = dumps_of(run, rank)
    return max(dumps, key=lambda dump: (not dump.only_active, not dump.salvaged, len(dump.operations)), default=None)


def files_of(run: RecordedRun, rank: int) -> tuple[FileFacts, ...]:
    """What all inspections saw of a rank's files, in their order."""
    return _FILES_BY_RANK.find(run.files, rank)


def facts_at(files: tuple[FileFacts, ...], path: str, when: str) -> FileFacts | None:
    """What an inspection saw at a path, None when it did not look."""
    return next(iter(_FILES_BY_PLACE.find(files, (path, when))), None)
