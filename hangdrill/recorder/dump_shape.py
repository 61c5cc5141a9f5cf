"""Plain values (of a pickle or of JSON) -> RankDump. The only place that knows the recorder's keys.

Every field is checked; an error ends in the key it was found at ("entries[17].state"). What later versions add is
ignored, what earlier versions lack gets its default. The JSON of the control plane says the same with lists for
tuples, 0 for None and text for the numbers of pg_status.

Values may be shared many times over (or contain themselves): each distinct value is read once and remembered, so the
work is bounded by the size of the file.
"""

import re
from collections.abc import Callable, Sized
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from hangdrill.model.dump import DumpFormat, Frame, Group, GroupStatus, Operation, OperationState, RankDump
from hangdrill.model.table import OperationTable
from hangdrill.recorder.plain_values import MAX_TEXT, PlainReader, show
from hangdrill.recorder.printable import printable

__all__ = ["ShapeReader", "read_shape"]

MAX_OPERATIONS = 1_000_000
MAX_MEMBERS = 4_000_000
"""Of all groups of one dump together: a rank of 16384 may be in two hundred groups of them all."""
MAX_DIMENSIONS = 64
"""Of a tensor, as torch itself limits it."""
MAX_CACHED_TEXT = 200_000
"""Of a list of ranks that is remembered from one dump to the next; one of 16384 has 110,000."""

_STATES = {state.value: state for state in OperationState}
_P2P = re.compile(r"(?P<name>send|recv) (?P<self>\d{1,9}|\?)?(?:->|<-)(?P<peer>\d{1,9}|\?)$")
_NUMBER = re.compile(r"\d{1,9}")

T = TypeVar("T")


def read_shape(
    root: object,
    *,
    rank: int,
    path: str,
    form: DumpFormat,
    open_ids: frozenset[int] = frozenset(),
    cut_at_byte: int | None = None,
    reason: str = "",
) -> RankDump:
    """The dump in a plain value. open_ids: containers that a cut left incomplete; entries among them are left out."""
    return ShapeReader(rank, path, open_ids).dump(root, form, cut_at_byte, reason)


class ShapeReader(PlainReader):
    """Reads one dump, remembering what it has read by identity."""

    def __init__(self, rank: int, path: str, open_ids: frozenset[int] = frozenset()) -> None:
        super().__init__(f"rank {rank}, {path}" if path else f"rank {rank}")
        self.rank = rank
        self.path = path
        self.open_ids = open_ids
        self.memo: dict[tuple[int, int], Any] = {}
        self.kept: list[object] = []
        self.equals: dict[tuple[int, ...], Any] = {}
        self.equal_sizes: dict[str, tuple[int, ...]] = {}
        self.names: dict[str, tuple[str, str, int | None]] = {}
        self.frames_seen: dict[tuple[str, int, str], Frame] = {}

    def dump(
        self,
        root: object,
        form: DumpFormat,
        cut_at_byte: int | None = None,
        reason: str = "",
        operations: OperationTable | None = None,
    ) -> RankDump:
        """The dump in a plain value; operations: where they have been read already."""
        cut = cut_at_byte is not None
        if type(root) is not dict or not (root.keys() & {"version", "entries", "pg_config", "pg_status"}):
            if cut:
                self.damaged(f"{reason} at byte {cut_at_byte}, before anything that could be saved")
            self.fail("", f"expected a dict with version, pg_config, pg_status and entries, got {show(root)}")
        version = self.version(root.get("version"), cut)
        if operations is None:
            operations = OperationTable.of(self.operations(root.get("entries"), "entries"))
        self.check_number(operations)
        status = self.status(root.get("pg_status"))
        return RankDump(
            rank=self.rank,
            path=self.path,
            format=form,
            version=version,
            groups=self.groups(root.get("pg_config")),
            status=status,
            operations=operations,
            comm_lib_version=self.text(root.get("comm_lib_version", root.get("nccl_version", "")), "comm_lib_version"),
            only_active=_is_only_active(operations, status, form),
            salvaged=cut,
            cut_at_byte=cut_at_byte,
        )

    def version(self, value: object, cut: bool) -> tuple[int, ...]:
        if value is None and cut:
            return ()
        text = self.text(value, "version")
        parts = text.split(".")
        if not all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts):
            self.fail("version", f"expected numbers with points, such as '2.10', got {show(value)}")
        version = tuple(int(part) for part in parts)
        if version[0] != 2:
            self.fail("version", f"expected 2.0 to 2.10, got {show(value)}", "use a hangdrill that knows this version")
        return version

    def groups(self, value: object) -> tuple[Group, ...]:
        found: list[Group] = []
        members = 0
        for key, config in self.mapping(value, "pg_config"):
            if id(config) not in self.open_ids:
                found.append(self.group(config, f"pg_config.{printable(key[:60])}"))
                members += len(found[-1].ranks)
                if members > MAX_MEMBERS:
                    self.fail("pg_config", f"the groups have more than {MAX_MEMBERS} members together")
        return tuple(found)

    def group(self, value: object, at: str) -> Group:
        config = dict(self.mapping(value, at))
        name, desc = self.text(config.get("name", ""), f"{at}.name"), self.text(config.get("desc", ""), f"{at}.desc")
        return Group(name=name, desc=desc, ranks=self.once(config.get("ranks", ""), 7, self.ranks, f"{at}.ranks"))

    def ranks(self, value: object, at: str) -> tuple[int, ...]:
        if type(value) is str:
            return _ranks_in(value) if len(value) <= MAX_CACHED_TEXT else _ranks_in.__wrapped__(value)
        return tuple(dict.fromkeys(self.count(number, at) for number in self.items(value, at)))

    def status(self, value: object) -> tuple[GroupStatus, ...]:
        found = [
            GroupStatus(
                pg_id=printable(key[:MAX_TEXT]),
                last_enqueued=self.number(fields.get("last_enqueued_collective", -1), f"{at}.last_enqueued_collective"),
                last_started=self.number(fields.get("last_started_collective", -1), f"{at}.last_started_collective"),
                last_completed=self.number(
                    fields.get("last_completed_collective", -1), f"{at}.last_completed_collective"
                ),
            )
            for key, entry in self.mapping(value, "pg_status")
            if id(entry) not in self.open_ids
            for at in (f"pg_status.{printable(key[:60])}",)
            for fields in (dict(self.mapping(entry, at)),)
        ]
        return tuple(found)

    def operations(self, value: object, at: str) -> tuple[Operation, ...]:
        entries = self.items(value, at)
        self.check_number(entries)
        read = self.operation
        return tuple(
            self.once(entry, 0, read, f"{at}[{i}]") for i, entry in enumerate(entries) if id(entry) not in self.open_ids
        )

    def check_number(self, operations: Sized) -> None:
        if len(operations) > MAX_OPERATIONS:
            self.fail("entries", f"{len(operations)} operations are more than {MAX_OPERATIONS}")

    def entry(self, value: object, at: str) -> Operation:
        """An operation of a value that nothing else keeps: kept here, since what is read is remembered by identity."""
        self.kept.append(value)
        return self.operation(value, at)

    def operation(self, value: object, at: str) -> Operation:
        if type(value) is not dict:
            self.fail(at, f"expected a dict, got {show(value)}")
        get = value.get
        state = get("state")
        if type(state) is not str or state not in _STATES:
            self.fail(f"{at}.state", f"expected scheduled, started or completed, got {show(state)}")
        backend, name, peer = self.name(get("profiling_name"), f"{at}.profiling_name")
        p2p = get("is_p2p")
        if p2p is None:
            p2p = name in {"send", "recv"}
        elif type(p2p) is not bool:
            self.fail(f"{at}.is_p2p", f"expected true or false, got {show(p2p)}")
        group_name, group_desc = self.once(get("process_group", ()), 1, self.group_of, f"{at}.process_group")
        key = "p2p_seq_id" if p2p else "collective_seq_id"
        retired = get("retired", False)
        if type(retired) is not bool:
            self.fail(f"{at}.retired", f"expected true or false, got {show(retired)}")
        return Operation(
            record_id=self.count(get("record_id"), f"{at}.record_id"),
            pg_id=self.number(get("pg_id", -1), f"{at}.pg_id"),
            group_name=group_name,
            group_desc=group_desc,
            name=name,
            backend=backend,
            sequence=self.count(get(key, get("seq_id")), f"{at}.{key}"),
            p2p=p2p,
            op_id=self.number(get("op_id", 0), f"{at}.op_id"),
            state=_STATES[state],
            retired=retired,
            created_ns=self.count(get("time_created_ns", 0), f"{at}.time_created_ns"),
            peer=peer,
            started_ns=self.moment(get("time_discovered_started_ns"), f"{at}.time_discovered_started_ns"),
            completed_ns=self.moment(get("time_discovered_completed_ns"), f"{at}.time_discovered_completed_ns"),
            input_sizes=self.once(get("input_sizes"), 2, self.sizes, f"{at}.input_sizes"),
            input_dtypes=self.once(get("input_dtypes"), 3, self.dtypes, f"{at}.input_dtypes"),
            output_sizes=self.once(get("output_sizes"), 2, self.sizes, f"{at}.output_sizes"),
            output_dtypes=self.once(get("output_dtypes"), 3, self.dtypes, f"{at}.output_dtypes"),
            timeout_ms=self.number(get("timeout_ms", 0), f"{at}.timeout_ms"),
            frames=self.once(get("frames"), 4, self.frames, f"{at}.frames"),
        )

    def name(self, value: object, at: str) -> tuple[str, str, int | None]:
        """Backend, bare name and peer of a profiling name: "nccl2:recv 0<-1" is nccl2, recv, 1."""
        if type(value) is str and value in self.names:
            return self.names[value]
        text = self.text(value, at)
        backend, colon, bare = text.partition(":")
        if not colon or " " in backend:
            backend, bare = "", text
        peer = None
        if match := _P2P.match(bare):
            bare = match["name"]
            peer = None if match["peer"] == "?" else int(match["peer"])
        self.names[text] = backend, bare, peer
        return backend, bare, peer

    def group_of(self, value: object, at: str) -> tuple[str, str]:
        if type(value) is str:  # a name without a description
            return self.text(value, at), ""
        pair = self.items(value, at)
        if len(pair) == 0:
            return "", ""
        if len(pair) != 2:
            self.fail(at, f"expected a name and a description, got {len(pair)} values")
        return self.text(pair[0], f"{at}[0]"), self.text(pair[1], f"{at}[1]")

    def sizes(self, value: object, at: str) -> tuple[tuple[int, ...], ...]:
        sizes = self.items(value, at)
        return self.one_of(
            tuple(self.once(size, 5, self.size, at) if _is_long(size) else self.size(size, at) for size in sizes)
        )

    def size(self, value: object, at: str) -> tuple[int, ...]:
        numbers = tuple(self.number(number, at) for number in self.items(value, at))
        if len(numbers) > MAX_DIMENSIONS:
            self.fail(at, f"a tensor of {len(numbers)} dimensions; no tensor has more than {MAX_DIMENSIONS}")
        return self.equal_sizes.setdefault(str(numbers), numbers)  # by text: whose hashes nobody can foresee

    def dtypes(self, value: object, at: str) -> tuple[str, ...]:
        return self.one_of(tuple(self.text(dtype, at) for dtype in self.items(value, at)))

    def frames(self, value: object, at: str) -> tuple[Frame, ...]:
        frames = (self.once(frame, 6, self.frame, f"{at}[{i}]") for i, frame in enumerate(self.items(value, at)))
        return self.one_of(tuple(frames))

    def one_of(self, values: tuple[T, ...]) -> tuple[T, ...]:
        """One tuple for all equal ones, of values each of which is one for all equal ones."""
        found: tuple[T, ...] = self.equals.setdefault(tuple(map(id, values)), values)
        return found

    def frame(self, value: object, at: str) -> Frame:
        fields = dict(self.mapping(value, at))
        filename = self.text(fields.get("filename", ""), f"{at}.filename")
        line = self.number(fields.get("line", 0), f"{at}.line")
        name = self.text(fields.get("name", ""), f"{at}.name")
        return self.frames_seen.setdefault((filename, line, name), Frame(filename=filename, line=line, name=name))

    def once(self, value: object, kind: int, read: Callable[[Any, str], T], at: str) -> T:
        """`read(value)`, done once for each distinct value. The tree lives as long as the reader, so identity holds."""
        key = (kind, id(value))
        if key not in self.memo:
            self.memo[key] = read(value, at)
        found: T = self.memo[key]
        return found


@lru_cache(maxsize=64)
def _ranks_in(text: str) -> tuple[int, ...]:
    """The ranks in "[0, 1, 2]". Every rank of a job says the same of its groups, and there may be thousands."""
    numbers = (int(number[0]) for number in islice(_NUMBER.finditer(text), MAX_MEMBERS + 1))
    return tuple(dict.fromkeys(numbers))


def _is_long(size: object) -> bool:
    """Whether it is worth the memory to remember it by identity."""
    return type(size) is list and len(size) > 16


def _is_only_active(operations: OperationTable, status: tuple[GroupStatus, ...], form: DumpFormat) -> bool:
    """Whether finished operations were left out, so that absence proves nothing.

    The recorder numbers all operations of a process, so a full history is a run of numbers. A history that consists of
    unfinished operations only and does not begin at the first one must have been filtered; so has an empty one of a
    process that has done something.
    """
    if not operations:
        return form is DumpFormat.JSON or any(group.last_enqueued >= 0 for group in status)
    if any(kind.retired or kind.state is OperationState.COMPLETED for kind in operations.kinds):
        return False
    return any(map(int.__ne__, operations.record_ids, range(len(operations))))
