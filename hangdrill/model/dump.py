"""What one rank's flight recorder said, as frozen values. `hangdrill.recorder` makes them from bytes."""

from collections.abc import Sequence
from enum import Enum

import msgspec

__all__ = ["DumpFormat", "Frame", "Group", "GroupStatus", "Operation", "OperationState", "RankDump"]


class OperationState(Enum):
    """The recorder's own word for how far an operation came. It can lie: see docs/what-torch-does.md."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    COMPLETED = "completed"


class DumpFormat(Enum):
    """How the file is written."""

    PICKLE = "pickle"
    JSON = "json"


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One stack frame, as the recorder stored it; innermost first in `Operation.frames`."""

    filename: str
    line: int
    name: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A process group as `pg_config` describes it. `ranks` are global ranks; empty when the dump does not say."""

    name: str
    desc: str
    ranks: tuple[int, ...] = ()


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`pg_status` of one group. The key is the recorder's pg_id, not the group's name; -1 means never.

    nccl2 counts from 0, nccl-legacy from 1, gloo counts p2p too (it stores op ids).
    """

    pg_id: str
    last_enqueued: int
    last_started: int
    last_completed: int


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the recorder.

    name is bare and torch's own ("all_reduce", "send"); backend is the prefix it stood behind ("nccl2", "gloo").
    sequence is collective_seq_id, or p2p_seq_id for p2p: two number spaces of one group, both from 1.
    peer: the other *group* rank of a send or recv, None when not p2p or unknown (any source).
    Times are ns of the wall clock of the rank's host; None when the recorder did not see it.
    """

    record_id: int
    pg_id: int
    group_name: str
    group_desc: str
    name: str
    backend: str
    sequence: int
    p2p: bool
    op_id: int
    state: OperationState
    retired: bool
    created_ns: int
    peer: int | None = None
    started_ns: int | None = None
    completed_ns: int | None = None
    input_sizes: tuple[tuple[int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    output_dtypes: tuple[str, ...] = ()
    timeout_ms: int = 0
    frames: tuple[Frame, ...] = ()


class RankDump(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's dump.

    rank: global rank, from the manifest or the file's name (a dump does not say it itself).
    version: as integers, so that (2, 9) < (2, 10). only_active: finished operations were left out, so that
    absence proves nothing. salvaged: the file was cut and these are the operations before the cut.
    operations are in the recorder's order (oldest first).
    """

    rank: int
    path: str
    format: DumpFormat
    version: tuple[int, ...]
    groups: tuple[Group, ...]
    status: tuple[GroupStatus, ...]
    operations: Sequence[Operation]
    comm_lib_version: str = ""
    only_active: bool = False
    salvaged: bool = False
    cut_at_byte: int | None = None
