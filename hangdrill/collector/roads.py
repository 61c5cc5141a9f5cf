"""Pulls one rank's evidence, from the surest road to the richest. Runs in a thread of its own for each rank.

Every road has a deadline, and what one road shows spares the others: a rank that does not answer in C++ is not asked
through Python, and one that holds its GIL is not asked for it twice.
"""

import time
from collections.abc import Mapping

import msgspec

from hangdrill.collector.control import RankKey
from hangdrill.collector.control_plane import NoAnswer, RankSocket, Silence
from hangdrill.collector.dump_size import count_entries
from hangdrill.collector.native import NativeFile
from hangdrill.collector.procfs import read_process
from hangdrill.collector.sources import RecorderSource
from hangdrill.collector.stacks import dump_with_pyspy
from hangdrill.collector.store import EvidenceStore
from hangdrill.collector.traces import Trace, read_trace
from hangdrill.model.run import ArtifactKind, PullReason, RankState

__all__ = ["PullOrder", "PullReport", "pull_rank"]

_TRACE_DEADLINE_S = 1.0
_DUMP_DEADLINE_S = 1.5
_DUMP_WITH_STACKS_DEADLINE_S = 8.0
_NATIVE_DEADLINE_S = 3.0
_TRACEBACK_DEADLINE_S = 1.0
_NOT_FOUND = 404


class PullOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to pull from, and what is known already.

    brief: one short question for the dump is enough; its program ended well, or everything else was pulled before.
    """

    key: RankKey
    reason: PullReason
    state: RankState
    brief: bool = False
    socket: RankSocket | None = None
    sources: tuple[RecorderSource, ...] = ()
    live: tuple[RecorderSource, ...] = ()
    """Those that had something to say before: an empty dump of another one says nothing."""
    pid: int | None = None
    started_ticks: int | None = None
    latest: tuple[Trace, ...] = ()
    before_the_end: Trace | None = None
    native: NativeFile | None = None
    entries: Mapping[RecorderSource, int] = {}
    """How many operations the dumps of earlier pulls hold: a later one must hold more to be kept."""


class PullReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. notes: why roads failed. entries: as in the order, brought up to date."""

    answered: bool = False
    notes: tuple[str, ...] = ()
    entries: Mapping[RecorderSource, int] = {}


def pull_rank(order: PullOrder, store: EvidenceStore) -> PullReport:
    """All roads, one after the other. Raises nothing that a rank could cause."""
    pull = _Pull(order, store)
    if order.brief:
        pull.dump(stacks=False)
        return pull.report()
    if order.state is RankState.GONE or order.socket is None:
        pull.remembered_trace("the rank is gone" if order.state is RankState.GONE else "the rank has no socket")
    else:
        pull.ask()
    if order.pid is not None:
        pull.stacks_from_outside(order.pid)
        pull.process(order.pid)
    return pull.report()


class _Pull:
    """One pull under way."""

    def __init__(self, order: PullOrder, store: EvidenceStore) -> None:
        self._order = order
        self._store = store
        self._notes: list[str] = []
        self._answered = False
        self._has_stacks = False
        self._asked_ns = 0
        self._entries = dict(order.entries)

    def report(self) -> PullReport:
        return PullReport(answered=self._answered, notes=tuple(self._notes), entries=self._entries)

    def ask(self) -> None:
        """The roads over the socket, until one shows that the rank does not answer at all."""
        if not self._trace():
            return
        dumped = self.dump(stacks=True)
        if dumped is not Silence.LATE:
            self._traceback()
        if dumped is not None:
            self._native_file()

    def _trace(self) -> bool:
        """Where the rank stands. False when it does not answer at all."""
        fresh: list[Trace] = []
        for source in self._order.sources:
            body = self._post(source.trace_handler, _TRACE_DEADLINE_S, **source.trace_parameters)
            if isinstance(body, bytes):
                try:
                    fresh.append(read_trace(body, source))
                except NoAnswer as error:
                    self._note(source.trace_handler, error)
            elif body is not Silence.REFUSED:
                self.remembered_trace("the rank did not answer")
                return False
        if self._order.before_the_end is not None:
            self.remembered_trace("the rank had raised by then")
        else:
            self._keep_traces([trace for trace in fresh if not trace.empty])
        return True

    def remembered_trace(self, why: str) -> None:
        """What was seen while the rank still ran; the best there is when it is gone."""
        before = self._order.before_the_end
        traces = (before,) if before is not None else self._order.latest
        if traces:
            self._notes.append(f"the trace is the last one that the collector saw before: {why}")
            self._keep_traces(traces)
        else:
            self._notes.append(f"no trace: {why}, and none that the collector saw before is recent enough")

    def _keep_traces(self, traces: "tuple[Trace, ...] | list[Trace]") -> None:
        for trace in traces:
            self._add(ArtifactKind.TRACE, trace.body, trace.source.trace_handler, "trace", "json")

    def dump(self, *, stacks: bool) -> Silence | None:
        """Full history of every recorder. None when there is one, else why not (the last reason)."""
        trouble: Silence | None = Silence.REFUSED
        found: dict[RecorderSource, bytes] = {}
        self._asked_ns = time.time_ns()
        for source in self._order.sources:
            data = self._history(source, stacks=stacks and source.backend != "gloo")
            if isinstance(data, bytes):
                found[source] = data
                trouble = None
            elif trouble is not None:
                trouble = data
            if data is Silence.LATE:
                break
        self._keep_dumps(found)
        return trouble

    def _history(self, source: RecorderSource, *, stacks: bool) -> bytes | Silence:
        """Without stacks first, for that is quick and shows whether the handler answers at all; then with them."""
        plain = self._ask_history(source, False, _DUMP_DEADLINE_S)
        if not stacks or isinstance(plain, Silence) or count_entries(plain) == 0:
            return plain
        rich = self._ask_history(source, True, _DUMP_WITH_STACKS_DEADLINE_S)
        return plain if isinstance(rich, Silence) else rich

    def _ask_history(self, source: RecorderSource, stacks: bool, deadline_s: float) -> bytes | Silence:
        if source.legacy:
            return self._post("dump_nccl_trace_pickle", deadline_s, includestacktraces="true" if stacks else "false")
        return self._post("hangdrill_dump", deadline_s, backend=source.backend, stacks="1" if stacks else "0")

    def _keep_dumps(self, found: Mapping[RecorderSource, bytes]) -> None:
        """Whole dumps only. An empty one is kept only when no recorder of this rank holds anything, and then of one
        that the rank is known to use."""
        counts = {source: self._count(source, data) for source, data in found.items()}
        whole = {source: count for source, count in counts.items() if count is not None}
        filled = {source: count for source, count in whole.items() if count > 0} or dict(
            [(source, count) for source, count in whole.items() if source in (self._order.live or whole)][:1]
        )
        for source, count in filled.items():
            if count > self._entries.get(source, -1):
                self._entries[source] = count
                self._add(ArtifactKind.DUMP, found[source], _road_of(source), "dump", "pickle", asked_ns=self._asked_ns)

    def _count(self, source: RecorderSource, data: bytes) -> int | None:
        count = count_entries(data)
        if count is None:
            self._notes.append(f"{_road_of(source)}: the answer is not a whole dump ({len(data)} bytes)")
        return count

    def _native_file(self) -> None:
        """Let torch write its own file, but never over one that is there: 2.15 would replace it by a poorer one."""
        native = self._order.native
        if native is None or native.exists():
            return
        for source in self._order.sources:
            if source.legacy or source.backend == "gloo":
                continue
            if isinstance(self._post("fr_dump_file", _NATIVE_DEADLINE_S, backend=source.backend), bytes):
                native.copy(self._store, self._order.key, road="fr_dump_file", reason=self._order.reason)
                return

    def _traceback(self) -> None:
        text = self._post("dump_traceback", _TRACEBACK_DEADLINE_S)
        if isinstance(text, bytes) and text.strip():
            self._has_stacks = self._add(ArtifactKind.STACKS, text, "dump_traceback", "stacks", "txt")

    def stacks_from_outside(self, pid: int) -> None:
        """For a rank that is stopped or holds its GIL."""
        if self._has_stacks or self._order.state is RankState.GONE:
            return
        text = dump_with_pyspy(pid)
        if isinstance(text, bytes):
            self._add(ArtifactKind.STACKS, text, "py-spy", "stacks", "txt")
        else:
            self._notes.append(text)

    def process(self, pid: int) -> None:
        """What the kernel says of it."""
        record = read_process(pid, looked_ns=time.time_ns(), started_ticks=self._order.started_ticks)
        data = msgspec.json.format(msgspec.json.encode(record), indent=1)
        self._add(ArtifactKind.PROCESS, data, "proc", "process", "json")

    def _add(
        self,
        kind: ArtifactKind,
        data: bytes,
        road: str,
        name: str,
        extension: str,
        *,
        asked_ns: int | None = None,
    ) -> bool:
        order = self._order
        added = self._store.add(
            order.key,
            kind,
            data,
            road=road,
            reason=order.reason,
            name=name,
            extension=extension,
            asked_ns=asked_ns,
        )
        return added is not None

    def _post(self, handler: str, deadline_s: float, **parameters: str) -> bytes | Silence:
        if self._order.socket is None:
            return Silence.ABSENT
        try:
            body = self._order.socket.post(handler, parameters, deadline_s=deadline_s)
        except NoAnswer as error:
            self._note(handler, error)
            self._answered = self._answered or error.cause is Silence.REFUSED
            return error.cause
        self._answered = True
        return body

    def _note(self, handler: str, error: NoAnswer) -> None:
        note = f"{handler}: this process has no such handler" if error.status == _NOT_FOUND else f"{handler}: {error}"
        if note not in self._notes:
            self._notes.append(note)


def _road_of(source: RecorderSource) -> str:
    return "dump_nccl_trace_pickle" if source.legacy else "handler"
