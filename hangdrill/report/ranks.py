"""One row a rank: its state, its dump, its last operation and where it stands, as far as the record says."""

import msgspec

from hangdrill.checks.evidence import best_dump, fault_reports, hang_artifacts
from hangdrill.checks.hosts import lost_hosts, node_of
from hangdrill.checks.words import size_text
from hangdrill.model.diagnosis import Diagnosis
from hangdrill.model.run import ArtifactKind, DrillResult, RecordedRun
from hangdrill.report.sentence import operation_text, place_text

__all__ = ["MISSING", "RankRow", "rank_rows"]

MISSING = "missing"


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the table of ranks says of one. Empty texts are not known."""

    rank: int
    state: str
    fault: str = ""
    dump: str = ""
    last_operation: str = ""
    place: str = ""


class _Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A dump or a trace, from the result or from the record."""

    kind: ArtifactKind
    bytes: int
    road: str


def rank_rows(result: DrillResult, run: RecordedRun | None = None) -> tuple[RankRow, ...]:
    """The rows of all ranks of the world, from the result alone or, richer, with the record too."""
    return tuple(
        RankRow(
            rank=rank,
            state=_state(rank, result.diagnosis, run),
            fault=_fault(rank, run),
            dump=_dump(_pieces(rank, result, run)),
            last_operation=_last_operation(rank, result.diagnosis, run),
            place=_place(rank, run),
        )
        for rank in _world(result, run)
    )


def _world(result: DrillResult, run: RecordedRun | None) -> tuple[int, ...]:
    if run is not None:
        return tuple(range(run.scenario.job.world_size))
    expected = result.diagnosis.ranks.expected if result.diagnosis is not None else None
    if expected is not None:
        return tuple(range(expected))
    told = {int(rank) for check in result.checks for rank in check.ranks}
    return tuple(sorted(told | {artifact.rank for artifact in result.artifacts}))


def _state(rank: int, diagnosis: Diagnosis | None, run: RecordedRun | None) -> str:
    """By the diagnosis, absent or waiting; else by what the collector saw of the process."""
    stuck = diagnosis.stuck if diagnosis is not None else None
    if stuck is not None and rank in stuck.absent:
        return "absent"
    if stuck is not None and rank in stuck.waiting:
        return "waiting"
    if run is not None and (node := node_of(run, rank)) is not None and node in lost_hosts(run):
        return "lost"  # with its host
    pulls = run.manifest.ranks if run is not None and run.manifest is not None else ()
    return next((pull.state.value for pull in pulls if pull.rank == rank), "")


def _fault(rank: int, run: RecordedRun | None) -> str:
    reports = fault_reports(run) if run is not None else ()
    return next((report.kind for report in reports if report.rank == rank), "")


def _pieces(rank: int, result: DrillResult, run: RecordedRun | None) -> list[_Piece]:
    if run is not None:
        return [_Piece(kind=item.kind, bytes=item.bytes, road=item.road) for item in hang_artifacts(run, rank)]
    return [_Piece(kind=item.kind, bytes=item.bytes, road=item.road) for item in result.artifacts if item.rank == rank]


def _dump(pieces: list[_Piece]) -> str:
    """The size and road of the largest dump; of the largest trace, called one, when there is no dump."""
    for kind, word in ((ArtifactKind.DUMP, ""), (ArtifactKind.TRACE, "trace ")):
        largest = max((piece for piece in pieces if piece.kind is kind), key=lambda piece: piece.bytes, default=None)
        if largest is not None:
            return f"{word}{size_text(largest.bytes)}" + (f" by {largest.road}" if largest.road else "")
    return MISSING


def _last_operation(rank: int, diagnosis: Diagnosis | None, run: RecordedRun | None) -> str:
    dump = best_dump(run, rank) if run is not None else None
    if dump is not None and dump.operations:
        last = dump.operations[-1]
        return f"{last.name} #{last.sequence} of {last.group_desc or last.group_name}"
    stuck = diagnosis.stuck if diagnosis is not None else None
    return operation_text(stuck) if stuck is not None and rank in stuck.waiting else ""


def _place(rank: int, run: RecordedRun | None) -> str:
    """The line of the user's code: of the fault's report, the exit's, the dump's own, or the stacks taken."""
    if run is None:
        return ""
    pulls = run.manifest.ranks if run.manifest is not None else ()
    reports = [report for report in fault_reports(run) if report.rank == rank]
    exits = [pull.exit for pull in pulls if pull.rank == rank and pull.exit is not None]
    dump = best_dump(run, rank)
    frames = [report.frames for report in reports] + [ended.frames for ended in exits]
    frames += [dump.operations[-1].frames] if dump is not None and dump.operations else []
    frames.append(run.stacks.get(rank, ()))
    return next((place_text(found) for found in frames if found), "")
