"""Builders of dumps for the tests of single rules: one rank's history in a line.

`history("all_reduce", "all_reduce!")` are operations of the default group; "!" is pending, "mesh_tp:all_reduce" is of
another group, "send>1" and "recv<0" are sends and receives (peers are group ranks).
"""

from typing import Any

from hangdrill.model.dump import DumpFormat, Group, GroupStatus, Operation, OperationState, RankDump
from hangdrill.model.run import RankExit, RankPull, RankState

__all__ = ["DEFAULT", "SECOND_NS", "START_NS", "dump", "fell_out", "history", "report", "status", "world"]

START_NS = 1_795_969_000_000_000_000
SECOND_NS = 1_000_000_000
DEFAULT = "default_pg"
NAMES = {DEFAULT: "0", "mesh_tp": "1", "mesh_dp": "2", "other": "3"}


def world(size: int) -> Group:
    return Group(name="0", desc=DEFAULT, ranks=tuple(range(size)))


def history(*texts: str, backend: str = "gloo", rank: int = 0, first: int = 0, **every: Any) -> tuple[Operation, ...]:
    """One operation a text. first: the record number of the first; sequences count on from it in each group."""
    counts: dict[tuple[str, bool], int] = {}
    made = []
    for number, text in enumerate(texts):
        desc, _, bare = text.rstrip("!").rpartition(":")
        name, arrow, peer = bare.replace("<", ">").partition(">")
        key = (desc or DEFAULT, bool(arrow))
        counts[key] = counts.get(key, first) + 1
        made.append(
            _operation(
                number + first, key[0], name, counts[key], bool(arrow), text.endswith("!"), backend, rank, **every
            )
        )
        if arrow:
            made[-1] = _with(made[-1], peer=int(peer) if peer != "?" else None)
    return tuple(made)


def _operation(
    number: int, desc: str, name: str, sequence: int, p2p: bool, pending: bool, backend: str, rank: int, **every: Any
) -> Operation:
    gloo = backend == "gloo"
    created = START_NS + number * SECOND_NS // 100 + rank
    fields: dict[str, Any] = {
        "record_id": number,
        "pg_id": int(NAMES[desc]),
        "group_name": NAMES[desc],
        "group_desc": desc,
        "name": name,
        "backend": backend,
        "sequence": sequence,
        "p2p": p2p,
        "op_id": sequence - (backend == "nccl2"),
        "state": OperationState.SCHEDULED if gloo or pending else OperationState.COMPLETED,
        "retired": not pending,
        "created_ns": created,
        "completed_ns": None if gloo or pending else created + 1_000_000,
        "input_sizes": ((8,),),
        "input_dtypes": ("Float",),
        "output_sizes": ((8,),),
        "output_dtypes": ("Float",),
        "timeout_ms": 5_000,
        **every,
    }
    return Operation(**fields)


def _with(operation: Operation, **changes: Any) -> Operation:
    fields = {name: getattr(operation, name) for name in operation.__struct_fields__}
    return Operation(**{**fields, **changes})


def dump(rank: int, *texts: str, groups: tuple[Group, ...] = (), **changes: Any) -> RankDump:
    """The dump of a rank; `backend` and what else `history` takes may be given too."""
    own = {
        key: changes.pop(key)
        for key in ("backend", "first", "timeout_ms", "created_ns", "input_sizes")
        if key in changes
    }
    fields: dict[str, Any] = {
        "rank": rank,
        "path": f"fr_{rank}",
        "format": DumpFormat.PICKLE,
        "version": (2, 10),
        "groups": groups,
        "status": (),
        "operations": history(*texts, rank=rank, **own),
        **changes,
    }
    return RankDump(**fields)


def status(pg_id: str, enqueued: int, completed: int | None = None) -> GroupStatus:
    done = enqueued if completed is None else completed
    return GroupStatus(pg_id=pg_id, last_enqueued=enqueued, last_started=-1, last_completed=done)


def report(rank: int, state: RankState = RankState.RUNNING, **end: Any) -> RankPull:
    """A rank's report; with `ended` (exit, exception, signal) also how its program ended."""
    how = end.pop("ended", None)
    leave = None if how is None else RankExit(rank=rank, status=how, time_ns=1, **end)
    return RankPull(rank=rank, state=state, answered=True, exit=leave)


def fell_out(rank: int, **end: Any) -> RankPull:
    """A rank whose program ended with an exception out of torch.distributed."""
    return report(rank, RankState.EXITED, ended="exception", exception_type="RuntimeError", in_distributed=True, **end)
