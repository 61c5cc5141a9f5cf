"""Dumps of any world size, made in a line, for the tests of the story and of the page."""

from collections.abc import Iterable
from typing import Any

from hangdrill.diagnosis import diagnose
from hangdrill.model.diagnosis import Diagnosis
from hangdrill.model.dump import DumpFormat, Frame, Group, Operation, OperationState, RankDump

__all__ = ["ZERO_NS", "dump", "frames", "stalled", "told"]

ZERO_NS = 1_795_969_000_000_000_000
STEP_NS = 10_000_000


def frames(line: int, filename: str = "/app/train.py") -> tuple[Frame, ...]:
    """A stack as torch records it: its own frames innermost, then the user's."""
    torch = Frame(filename="/x/site-packages/torch/distributed/distributed_c10d.py", line=4174, name="all_reduce")
    return (
        torch,
        Frame(filename=filename, line=line, name="step"),
        Frame(filename=filename, line=900, name="<module>"),
    )


def dump(
    rank: int,
    last: int,
    world: int,
    *,
    pending: bool = False,
    kept: int = 2000,
    desc: str = "default_pg",
    **change: object,
) -> RankDump:
    """A rank that recorded all_reduce #1 to #last, of which the ring buffer kept so many."""
    group = Group(name="0", desc=desc, ranks=tuple(range(world)))
    operations = tuple(
        Operation(
            record_id=sequence - 1,
            pg_id=0,
            group_name="0",
            group_desc=desc,
            name="broadcast" if change.get("odd") == sequence else "all_reduce",
            backend="nccl2",
            sequence=sequence,
            p2p=False,
            op_id=sequence - 1,
            state=OperationState.SCHEDULED if pending and sequence == last else OperationState.COMPLETED,
            retired=not (pending and sequence == last),
            created_ns=ZERO_NS + sequence * STEP_NS + rank * 1000,
            timeout_ms=10_000,
            frames=frames(40 + sequence % 3) if change.get("stacks", True) else (),
        )
        for sequence in range(max(1, last - kept + 1), last + 1)
    )
    return RankDump(
        rank=rank,
        path=f"fr_{rank}",
        format=DumpFormat.PICKLE,
        version=(2, 10),
        groups=(group,),
        status=(),
        operations=operations,
        only_active=bool(change.get("only_active")),
    )


def stalled(
    world: int, culprits: Iterable[int], *, at: int = 55, lost: Iterable[int] = (), **change: Any
) -> list[RankDump]:
    """Everybody waits in all_reduce #at but the culprits; lost: ranks that left no dump."""
    late, gone = set(culprits), set(lost)
    return [
        dump(rank, at - (rank in late), world, pending=rank not in late, **change)
        for rank in range(world)
        if rank not in gone
    ]


def told(dumps: list[RankDump]) -> tuple[Diagnosis, list[RankDump]]:
    """The arguments of tell_story."""
    return diagnose(dumps), dumps
