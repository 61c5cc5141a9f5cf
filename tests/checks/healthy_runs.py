"""A whole healthy record to start from: four DDP ranks on gloo, rank 1 held before all_reduce #4, collector road.

`held_run()` passes every check that applies. `mutate(run, ...)` replaces fields; the others change one thing each.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from hangdrill.model.diagnosis import (
    Basis,
    Culprit,
    Diagnosis,
    HangKind,
    HangVerdict,
    RankRoll,
    StuckGroup,
    StuckOperation,
)
from hangdrill.model.dump import DumpFormat, Frame, Group, GroupStatus, Operation, OperationState, RankDump
from hangdrill.model.run import (
    AgentFacts,
    Artifact,
    ArtifactKind,
    FaultReport,
    FileFacts,
    GroupCount,
    JournalEvent,
    Manifest,
    PullReason,
    RankClock,
    RankPull,
    RankState,
    RecordedRun,
)
from hangdrill.model.scenario import Before, Expect, Fault, FaultKind, Job, Recorder, Scenario, Trigger, WorkloadName

Value = TypeVar("Value", bound=msgspec.Struct)

WORLD = (0, 1, 2, 3)
START_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000
CONFIRMED_NS = START_NS + 5 * SECOND_NS
PULLED_NS = START_NS + 9 * SECOND_NS
ENDED_NS = START_NS + 11 * SECOND_NS
UID = 1000
RUN_DIR = "/runs/quick/ddp-hold"
EVIDENCE = f"{RUN_DIR}/evidence"
PREFIX = f"{RUN_DIR}/native/fr_"


def mutate(value: Value, **changes: Any) -> Value:
    """The same value with other fields."""
    return msgspec.structs.replace(value, **changes)


def mutate_each(values: Iterable[Value], change: Callable[[Value], Value], **where: Any) -> tuple[Value, ...]:
    """The same values; those whose fields equal `where` are changed."""
    return tuple(
        change(value) if all(getattr(value, key) == wanted for key, wanted in where.items()) else value
        for value in values
    )


def scenario(**changes: Any) -> Scenario:
    """The scenario of the healthy record; `job=`, `fault=`, `recorder=` and `expect=` change keys of its tables."""
    tables: dict[str, msgspec.Struct] = {
        "job": Job(nproc_per_node=4, workload=WorkloadName.DDP),
        "fault": Fault(kind=FaultKind.HOLD, rank=1, before=Before(op="all_reduce", nth=4)),
        "recorder": Recorder(),
        "expect": Expect(culprit=1, kind=HangKind.RANK_ABSENT),
    }
    for name, fields in changes.items():
        tables[name] = mutate(tables[name], **fields)
    return Scenario(title="One rank of four is held before an all_reduce", **tables)


def operation(sequence: int, *, retired: bool, **changes: Any) -> Operation:
    """One all_reduce of the default group."""
    base = Operation(
        record_id=sequence - 1,
        pg_id=0,
        group_name="0",
        group_desc="default_pg",
        name="all_reduce",
        backend="gloo",
        sequence=sequence,
        p2p=False,
        op_id=sequence,
        state=OperationState.SCHEDULED,
        retired=retired,
        created_ns=START_NS + 4 * SECOND_NS + sequence * 1000,
    )
    return mutate(base, **changes)


def dump(rank: int, entered: int) -> RankDump:
    """A dump with so many operations entered, of which three finished."""
    return RankDump(
        rank=rank,
        path=f"{EVIDENCE}/rank_{rank}.dump",
        format=DumpFormat.PICKLE,
        version=(2, 10),
        groups=(Group(name="0", desc="default_pg", ranks=WORLD),),
        status=(GroupStatus(pg_id="0", last_enqueued=entered, last_started=-1, last_completed=3),),
        operations=tuple(operation(number, retired=number <= 3) for number in range(1, entered + 1)),
    )


def trace(rank: int, enqueued: int) -> RankDump:
    """All that a rank gives whose GIL is held: no operation, only how far each group came."""
    return mutate(
        dump(rank, 0),
        path=f"{EVIDENCE}/rank_{rank}.dump",
        format=DumpFormat.JSON,
        only_active=True,
        status=(GroupStatus(pg_id="0", last_enqueued=enqueued, last_started=-1, last_completed=enqueued),),
    )


def agent(rank: int, entered: int) -> AgentFacts:
    """What a rank's agent counted."""
    count = GroupCount(
        name="0",
        desc="default_pg",
        ranks=WORLD,
        backend_class="ProcessGroupGloo",
        collectives=entered,
        last_operation_ns=CONFIRMED_NS,
    )
    return AgentFacts(
        rank=rank,
        pid=4000 + rank,
        python="3.12.3",
        torch="2.15.0+cpu",
        torch_git="abc123",
        backend_requested="gloo",
        backend_class="ProcessGroupGloo",
        groups=(count,),
        started_ns=START_NS + 2 * SECOND_NS,
    )


def artifact(rank: int) -> Artifact:
    """One pulled dump."""
    return Artifact(
        rank=rank,
        kind=ArtifactKind.DUMP,
        road="handler",
        path=f"rank_{rank}.dump",
        bytes=2000,
        sha256=f"{rank:064x}",
        pulled_ns=PULLED_NS,
        reason=PullReason.STALL,
    )


def file_facts(rank: int, when: str) -> FileFacts:
    """How the pulled dump lies on the disk."""
    return FileFacts(
        when=when,
        rank=rank,
        kind=ArtifactKind.DUMP,
        path=f"{EVIDENCE}/rank_{rank}.dump",
        exists=True,
        bytes=2000,
        uid=UID,
        mode=0o600,
        mtime_ns=PULLED_NS,
        sha256=f"{rank:064x}",
    )


def diagnosis() -> Diagnosis:
    """Rank 1 never entered all_reduce #4."""
    return Diagnosis(
        verdict=HangVerdict.HANG,
        kind=HangKind.RANK_ABSENT,
        culprits=(Culprit(rank=1, basis=Basis.OBSERVED, why="never entered all_reduce #4 of default_pg"),),
        stuck=StuckOperation(
            group=StuckGroup(name="0", desc="default_pg", ranks=WORLD),
            op="all_reduce",
            sequence=4,
            p2p=False,
            waiting=(0, 2, 3),
            absent=(1,),
        ),
        ranks=RankRoll(expected=4, present=WORLD),
    )


def no_hang() -> Diagnosis:
    """Nothing was pending."""
    return Diagnosis(verdict=HangVerdict.NO_HANG, ranks=RankRoll(expected=4, present=WORLD))


def undecided() -> Diagnosis:
    """The evidence cannot tell."""
    return Diagnosis(
        verdict=HangVerdict.UNDECIDED,
        ranks=RankRoll(expected=4, present=WORLD),
        notes=("gloo records no p2p, so nothing is pending in the dumps",),
    )


def entered_by(rank: int) -> int:
    """Rank 1 stopped before the fourth operation."""
    return 3 if rank == 1 else 4


def held_run(**changes: Any) -> RecordedRun:
    """The healthy record."""
    base = RecordedRun(
        scenario_name="quick/ddp-hold",
        scenario=scenario(),
        run_id="hd-1",
        uid=UID,
        started_ns=START_NS,
        ended_ns=ENDED_NS,
        dump_prefix=PREFIX,
        evidence_dir=EVIDENCE,
        run_dir=RUN_DIR,
        journal=(JournalEvent(name="job-ended", elapsed_s=10.5, time_ns=ENDED_NS),),
        agents={rank: agent(rank, entered_by(rank)) for rank in WORLD},
        faults=(
            FaultReport(
                rank=1,
                kind="hold",
                time_ns=CONFIRMED_NS,
                group="0",
                op="all_reduce",
                sequence=4,
                frames=(Frame(filename="/home/me/train.py", line=42, name="train"),),
            ),
        ),
        manifest=Manifest(
            run_id="hd-1",
            world_size=4,
            noticed_ns=PULLED_NS - SECOND_NS,
            notice="all_reduce #4 of default_pg pending for 4.0 s on ranks 0, 2, 3",
            complete=True,
            ranks=tuple(RankPull(rank=rank, pid=4000 + rank, state=RankState.RUNNING, answered=True) for rank in WORLD),
            artifacts=tuple(artifact(rank) for rank in WORLD),
        ),
        artifacts=tuple(artifact(rank) for rank in WORLD),
        files=tuple(file_facts(rank, when) for when in ("collected", "job-exit") for rank in WORLD),
        dumps={rank: (dump(rank, entered_by(rank)),) for rank in WORLD},
        diagnosis=diagnosis(),
        job_exit_code=1,
        leftovers=(),
        clocks=tuple(RankClock(rank=rank, ahead_ns=0) for rank in WORLD),
    )
    return mutate(base, **changes)


def none_run(**changes: Any) -> RecordedRun:
    """The negative control: no fault, no hang, status 0; evidence only of orderly exits."""
    run = held_run(
        scenario=scenario(
            fault={"kind": FaultKind.NONE, "rank": None, "before": None},
            expect={"dumps": "none", "culprit": None, "culprits": (), "kind": None},
        ),
        faults=(),
        manifest=Manifest(run_id="hd-1", world_size=4, complete=True),
        artifacts=tuple(mutate(artifact(rank), reason=PullReason.EXIT) for rank in WORLD),
        diagnosis=no_hang(),
        job_exit_code=0,
    )
    return mutate(run, **changes)


def native_run(**changes: Any) -> RecordedRun:
    """The same stall with torch alone, as nccl-legacy does it: every rank wrote its own file."""
    artifacts = tuple(mutate(artifact(rank), road="native", path=f"native_fr_{rank}") for rank in WORLD)
    places = {rank: (f"{EVIDENCE}/native_fr_{rank}", f"{PREFIX}{rank}") for rank in WORLD}
    files = tuple(
        mutate(file_facts(rank, when), path=path, mode=0o644 if path.startswith(PREFIX) else 0o600)
        for when in ("collected", "job-exit")
        for rank in WORLD
        for path in places[rank]
    )
    run = held_run(
        scenario=scenario(recorder={"trigger": Trigger.NATIVE}),
        artifacts=artifacts,
        files=files,
        manifest=Manifest(run_id="hd-1", world_size=4, complete=True, artifacts=artifacts),
        dumps={rank: (mutate(dump(rank, entered_by(rank)), path=f"{PREFIX}{rank}"),) for rank in WORLD},
    )
    return mutate(run, **changes)


def lose_rank(run: RecordedRun, rank: int) -> RecordedRun:
    """The same record without any evidence of one rank."""
    return mutate(
        run,
        artifacts=tuple(item for item in run.artifacts if item.rank != rank),
        files=tuple(item for item in run.files if item.rank != rank),
        dumps={other: dumps for other, dumps in run.dumps.items() if other != rank},
    )


def with_dump(run: RecordedRun, rank: int, **changes: Any) -> RecordedRun:
    """The same record with one rank's dump changed."""
    return mutate(run, dumps={**run.dumps, rank: (mutate(run.dumps[rank][0], **changes),)})


def with_agent(run: RecordedRun, rank: int, **changes: Any) -> RecordedRun:
    """The same record with one rank's agent changed."""
    return mutate(run, agents={**run.agents, rank: mutate(run.agents[rank], **changes)})


def with_file(run: RecordedRun, rank: int, when: str, **changes: Any) -> RecordedRun:
    """The same record with one rank's file changed as one inspection saw it."""
    return mutate(run, files=mutate_each(run.files, lambda facts: mutate(facts, **changes), rank=rank, when=when))


def without_files(run: RecordedRun, when: str) -> RecordedRun:
    """The same record without one inspection."""
    return mutate(run, files=tuple(facts for facts in run.files if facts.when != when))


def restarted_run(**changes: Any) -> RecordedRun:
    """The job was restarted once after the hang, and its second attempt was healthy; both attempts' dumps are there."""
    run = held_run(scenario=scenario(job={"max_restarts": 1}))
    second = tuple(
        mutate(item, attempt=1, path=f"rank_{item.rank}.a1.dump", reason=PullReason.EXIT) for item in run.artifacts
    )
    run = mutate(
        run,
        artifacts=(*run.artifacts, *second),
        files=(*run.files, *(mutate(facts, when="restart") for facts in run.files if facts.when == "job-exit")),
        agents={rank: mutate(facts, attempt=1) for rank, facts in run.agents.items()},
        earlier_agents=tuple(run.agents.values()),
    )
    return mutate(run, **changes)
