"""What the flight recorders would have kept of a simulated run, as hangdrill's `RankDump`s, in each recorder's dialect.

The dialects are those of docs/what-torch-does.md: nccl2, nccl-legacy and gloo differ in their counting, their states,
in whether send and receive are recorded, and in what they say of groups.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

from simulator import Entry, Outcome, Step, Team

from hangdrill.model.dump import DumpFormat, Group, GroupStatus, Operation, OperationState, RankDump

__all__ = ["DIALECTS", "Recording", "groups_of", "record"]

DIALECTS = ("nccl2", "nccl-legacy", "gloo")
BASE_NS, TICK_NS = 1_795_969_006_000_000_000, 1_000_000
NCCL_NAMES = {"all_gather": "_all_gather_base", "reduce_scatter": "_reduce_scatter_base"}
GLOO_NAMES = {"reduce_scatter": "all_reduce"}


@dataclass(frozen=True)
class Recording:
    """How the run was recorded and what became of the files.

    window: how many operations the ring buffer keeps. versions: of each rank, repeated. lost: ranks without a file.
    any_source: receives do not say from whom. skew_s: how far the clocks of ranks are ahead.
    cut: how many operations were left of files that were cut.
    lag: pg_status is one operation behind. early: until which tick each rank's dump, taken too early, saw the run.
    """

    dialect: str = "nccl2"
    window: int = 2000
    only_active: bool = False
    versions: tuple[tuple[int, int], ...] = ((2, 10),)
    lost: frozenset[int] = frozenset()
    lag: bool = False
    timing: bool = False
    any_source: bool = False
    early: dict[int, int] = field(default_factory=dict)
    skew_s: dict[int, int] = field(default_factory=dict)
    cut: dict[int, int] = field(default_factory=dict)


def record(outcome: Outcome, how: Recording) -> list[RankDump]:
    """The dumps that are there, by rank."""
    gone = how.lost | outcome.killed
    return [_dump(outcome, rank, how) for rank in range(outcome.program.world) if rank not in gone]


def groups_of(outcome: Outcome) -> tuple[Group, ...]:
    """All groups with their members, as the launch record knows them."""
    return tuple(Group(name=t.name, desc=t.desc, ranks=t.ranks) for t in outcome.program.teams)


def _dump(outcome: Outcome, rank: int, how: Recording) -> RankDump:
    teams = [team for team in outcome.program.teams if rank in team.ranks]
    entries = list(_seen(outcome.entries[rank], how.early.get(rank)))
    operations = _number([o for e in entries for o in _operations(e, rank, teams, how)], how)
    operations = operations[: how.cut.get(rank)]
    return RankDump(
        rank=rank,
        path=f"fr_{rank}",
        format=DumpFormat.JSON if how.only_active else DumpFormat.PICKLE,
        version=how.versions[rank % len(how.versions)],
        groups=_config(teams, how),
        status=tuple(_status(entries, teams, how)),
        operations=tuple(operations),
        comm_lib_version="2.30.7" if how.dialect == "nccl-legacy" else "",
        only_active=how.only_active,
        salvaged=rank in how.cut,
        cut_at_byte=1000 if rank in how.cut else None,
    )


def _seen(entries: Iterable[Entry], until: int | None) -> Iterable[Entry]:
    for entry in entries:
        if until is None:
            yield entry
        elif entry.created <= until:
            late = entry.finished is None or entry.finished > until
            yield dataclasses.replace(entry, finished=None if late else entry.finished)


def _config(teams: list[Team], how: Recording) -> tuple[Group, ...]:
    if how.dialect == "gloo":
        return (Group(name="", desc="", ranks=teams[-1].ranks),)
    return tuple(Group(name=team.name, desc=team.desc, ranks=team.ranks) for team in teams)


def _number(operations: list[Operation], how: Recording) -> list[Operation]:
    """The ring buffer and, when asked for, active operations only: those that never were seen to complete."""
    kept = [o for o in enumerate(operations) if not (how.only_active and o[1].completed_ns is not None)]
    first = len(operations) - how.window
    return [_replace(operation, record_id=number) for number, operation in kept if number >= first]


def _replace(operation: Operation, **changes: object) -> Operation:
    known = {name: getattr(operation, name) for name in operation.__struct_fields__}
    return Operation(**{**known, **changes})


def _operations(entry: Entry, rank: int, teams: list[Team], how: Recording) -> Iterable[Operation]:
    step = entry.step
    if not step.p2p:
        yield _operation(entry, rank, teams, how, name=_name(step.op, how))
    elif how.dialect != "gloo":
        for part in step.parts:
            peer = None if how.any_source and not part.send else step.team.ranks.index(part.peer)
            yield _operation(entry, rank, teams, how, name="send" if part.send else "recv", peer=peer)
        if step.batched and how.dialect == "nccl-legacy":
            yield _operation(entry, rank, teams, how, name="coalesced", whole=True)


def _name(op: str, how: Recording) -> str:
    return (GLOO_NAMES if how.dialect == "gloo" else NCCL_NAMES).get(op, op)


def _operation(
    entry: Entry,
    rank: int,
    teams: list[Team],
    how: Recording,
    *,
    name: str,
    peer: int | None = None,
    whole: bool = False,
) -> Operation:
    step = entry.step
    start = BASE_NS + rank + how.skew_s.get(rank, 0) * 1_000_000_000
    created = start + entry.created * TICK_NS
    finished = None if entry.finished is None else start + entry.finished * TICK_NS
    if step.batched and not whole:
        finished = created + 1_000 if how.dialect == "nccl2" else None
    state = OperationState.COMPLETED if finished else OperationState.SCHEDULED
    if how.timing and how.dialect == "nccl-legacy" and not finished and entry.executed:
        state = OperationState.STARTED
    gloo = how.dialect == "gloo"
    inputs, outputs = _sizes(step, rank, how, name)
    return Operation(
        record_id=0,
        pg_id=teams.index(step.team),
        group_name=step.team.name,
        group_desc=step.team.desc,
        name=name,
        backend={"nccl-legacy": "nccl"}.get(how.dialect, how.dialect),
        sequence=entry.sequence,
        p2p=step.p2p,
        op_id=entry.op_id - (how.dialect == "nccl2"),
        state=OperationState.SCHEDULED if gloo else state,
        retired=finished is not None,
        created_ns=created,
        peer=peer,
        started_ns=finished if how.dialect == "nccl2" else None,
        completed_ns=None if gloo else finished,
        input_sizes=inputs,
        input_dtypes=(step.dtype,) * len(inputs),
        output_sizes=outputs,
        output_dtypes=(step.dtype,) * len(outputs),
        timeout_ms=10_000,
    )


def _sizes(step: Step, rank: int, how: Recording, name: str) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Input and output sizes, which for some operations differ by rank although nothing is wrong."""
    shape, many = step.shape, (step.shape[0] * len(step.team.ranks), *step.shape[1:])
    root = step.team.ranks[step.root] == rank
    match name:
        case "barrier" | "coalesced":
            return (), ()
        case "send":
            return (shape,), (() if how.dialect == "nccl2" else (shape,))
        case "recv":
            return (() if how.dialect == "nccl2" else (shape,)), (shape,)
        case "all_reduce" if step.op == "reduce_scatter":
            return (many,), (many,)
        case "all_gather" | "_all_gather_base":
            return (shape,), (many,)
        case "_reduce_scatter_base":
            return (many,), (shape,)
        case "all_to_all":
            return ((shape[0] + rank, *shape[1:]),), ((shape[0] + 2 * rank + 1, *shape[1:]),)
        case "gather":
            return (shape,), ((shape,) * len(step.team.ranks) if root else ())
        case "scatter":
            return ((shape,) * len(step.team.ranks) if root else ()), (shape,)
        case _:
            return (shape,), (shape,)


def _status(entries: list[Entry], teams: list[Team], how: Recording) -> Iterable[GroupStatus]:
    shift = 1 if how.dialect == "nccl2" else 0
    for pg_id, team in enumerate(teams):
        mine = [e for e in entries if e.step.team == team and not (how.dialect == "gloo" and e.step.p2p)]
        if mine or how.dialect != "gloo":
            done = [e.op_id for e in mine if not e.pending or (e.step.batched and how.dialect == "nccl2")]
            last = max(done, default=0) - (how.lag and bool(done))
            yield GroupStatus(
                pg_id=str(pg_id),
                last_enqueued=mine[-1].op_id - shift if mine else -1,
                last_started=-1,
                last_completed=last - shift if last else -1,
            )
