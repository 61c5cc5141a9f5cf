"""What the collector knows of one rank, put together from its socket, its agent's files and /proc."""

import time
from collections.abc import Mapping
from concurrent.futures import Future

import msgspec

from hangdrill.collector.control import ControlDirectory, RankKey
from hangdrill.collector.control_plane import RankSocket, Silence
from hangdrill.collector.looks import Look
from hangdrill.collector.native import NativeFile
from hangdrill.collector.notice import WAITS_LONG_S, RankView
from hangdrill.collector.operations_file import OperationsFile, Progress, count_groups
from hangdrill.collector.procfs import find_contained, process_state, read_stat
from hangdrill.collector.sources import RecorderSource
from hangdrill.collector.traces import OperationKey, PendingOperation, Trace
from hangdrill.model.run import AgentFacts, GroupCount, RankExit, RankPull, RankState

__all__ = ["WatchedRank"]

_NOTES_LIMIT = 24
_REPROBE_LOOKS = 25
_HEALTH_LOOKS = 5
_SHARE = 0.02
"""At most this part of a rank's time goes into looking at it: with gloo a full trace can take 30 ms."""


class WatchedRank:
    """One life of one rank. Only the collector's main thread changes it."""

    def __init__(self, key: RankKey, sources: tuple[RecorderSource, ...]) -> None:
        self.key = key
        self.socket: RankSocket | None = None
        self.pid: int | None = None
        self.contained_run = ""
        """The run's id when the rank is in a container: the pid that its agent tells is none of this host's."""
        self.started_ticks: int | None = None
        self.state = RankState.NEVER_SEEN
        self.facts: AgentFacts | None = None
        self.ahead_ns = 0
        """By how much the rank's clock is ahead of this process's."""
        self.exit: RankExit | None = None
        self.operations: OperationsFile | None = None
        self.progress: Progress | None = None
        self.progress_s = time.monotonic()
        self.advanced_s = self.progress_s
        """When the recorder last showed a new operation."""
        self.pending: tuple[PendingOperation, ...] = ()
        self.pending_since_s: dict[OperationKey, float] = {}
        self.traces: dict[RecorderSource, Trace] = {}
        self.kept: Trace | None = None
        """The last one with something pending."""
        self.unhealthy: tuple[str, ...] = ()
        self.silence: Silence | None = None
        self.silent_looks = 0
        self.has_answered = False
        self.pull_answered: bool | None = None
        self.last_trace_ns: int | None = None
        self.notes: list[str] = []
        self.pulling = False
        self.pulled = False
        self.pulled_at_end = False
        self.acked = False
        self.dump_entries: Mapping[RecorderSource, int] = {}
        self.native: NativeFile | None = None
        self.future: Future[Look] | None = None
        self.next_look_s = 0.0
        self.last_look_s = 0.0
        self._sources = sources
        self._frozen: RankPull | None = None
        self._looks = 0

    @property
    def seen(self) -> bool:
        """Whether this rank has shown any sign of life; a socket file alone may be a dead one's."""
        return self.state is not RankState.NEVER_SEEN

    @property
    def running(self) -> bool:
        """Whether its process is there, stopped or not."""
        return self.state in (RankState.RUNNING, RankState.STOPPED)

    @property
    def orderly_exit(self) -> bool:
        """Whether its program ended well."""
        return self.exit is not None and self.exit.status == "exit" and self.exit.code == 0

    @property
    def waited_long(self) -> bool:
        """Whether an operation had been pending for a while when the rank was last looked at: no normal end."""
        return any(self.last_look_s - since_s >= WAITS_LONG_S for since_s in self.pending_since_s.values())

    def note(self, text: str) -> None:
        """Keep a sentence for the manifest; once, and not without limit."""
        if text not in self.notes and len(self.notes) < _NOTES_LIMIT:
            self.notes.append(text)

    def live_sources(self) -> tuple[RecorderSource, ...]:
        """The recorders that have something to say; all candidates while none has, or gloo's alone: that one answers
        as soon as its group is made, the others only after their first operation."""
        live = tuple(source for source in self._sources if source in self.traces)
        return self._sources if all(source.backend == "gloo" for source in live) else live

    def next_look(self) -> tuple[tuple[RecorderSource, ...], bool]:
        """Which sources to ask next, and whether to ask for torch's own opinion."""
        self._looks += 1
        every = self._looks % _REPROBE_LOOKS == 0
        return (self._sources if every else self.live_sources()), self._looks % _HEALTH_LOOKS == 0

    def take_look(self, look: Look, *, poll_s: float, slowest_s: float) -> None:
        """Learn from a look, and say when the next one is due."""
        now_s = time.monotonic()
        self.next_look_s = now_s + max(poll_s, min(look.took_s / _SHARE, slowest_s))
        self.silence = look.silence
        if look.silence is not None:
            self.silent_looks += 1
            self.next_look_s = now_s + max(poll_s, min(1.0, slowest_s))
            return
        self.silent_looks = 0
        self.last_look_s = now_s
        self.has_answered = True
        if self.state is RankState.NEVER_SEEN:
            self.state = RankState.RUNNING
        if look.health is not None:
            self.unhealthy = () if look.health.healthy else look.health.unhealthy_backends or ("a backend",)
        for trace in look.traces:
            if not trace.empty:
                earlier = self.traces.get(trace.source)
                if earlier is None or earlier.enqueued != trace.enqueued:
                    self.advanced_s = now_s
                self.traces[trace.source] = trace
                self.last_trace_ns = time.time_ns() - int(look.took_s * 1e9)
            if trace.pending:
                self.kept = trace
        self.pending = tuple(op for trace in self.traces.values() for op in trace.pending)
        self.pending_since_s = {op.key: self.pending_since_s.get(op.key, now_s) for op in self.pending}
        if self.pid is None:
            self.take_process()

    def take_control(self, control: ControlDirectory, kinds: set[str]) -> None:
        """Learn from the agent's files. Facts are read once for the pid, and at the end for the groups."""
        if self.facts is None and "facts.json" in kinds:
            self.facts = control.facts(self.key)
            self.ahead_ns = control.clock_ahead_ns(self.key)
        if "exit.json" in kinds and (self.exit is None or self.running):
            self._take_exit(control)
        if self.operations is None and "ops" in kinds:
            self.operations = control.operations(self.key)
        if self.operations is not None:
            progress = self.operations.progress()
            if progress != self.progress:
                self.progress = progress
                self.progress_s = time.monotonic()

    def _take_exit(self, control: ControlDirectory) -> None:
        """A program that goes on after an announced exception announces its end once more: the last word counts."""
        end = control.exit(self.key)
        if end is not None and end != self.exit:
            self.exit = end
            self.facts = control.facts(self.key) or self.facts
            self.progress_s = time.monotonic()

    def take_process(self) -> None:
        """Learn from /proc. A pid is pinned with its start time the first time it is seen alive."""
        if self.pid is None:  # in another pid namespace it stays so, and only the socket tells
            self.pid = (self.socket.pid if self.socket is not None else None) or self._told_pid()
            if self.pid is None:
                if self.has_answered and self.silence is Silence.ABSENT:
                    self.state = RankState.GONE if self.exit is None else RankState.EXITED
                return
            stat = read_stat(self.pid)
            self.started_ticks = None if stat is None else stat.started_ticks
        state = process_state(self.pid, self.started_ticks)
        if state is RankState.GONE and self.exit is not None:
            state = RankState.EXITED
        self.state = state

    def _told_pid(self) -> int | None:
        """As its agent wrote it down. A contained rank tells another number, and is gone when that is not found."""
        if self.facts is None or not self.contained_run:
            return self.facts.pid if self.facts else None
        found = find_contained(self.facts.pid, self.contained_run)
        if found is None:
            self.state = RankState.GONE if self.exit is None else RankState.EXITED
        return found

    def trace_before_the_end(self) -> Trace | None:
        """The trace that shows the operation which then failed as still pending.

        After an operation of gloo has raised, the recorder calls it finished; so what was seen before is the better
        evidence. Only when the exit names that very operation: any other pending one may have ended well since.
        """
        if self.kept is None or self.exit is None or not self.exit.in_distributed:
            return None
        last = self.exit.last_sequence
        return self.kept if last and any(op.key.sequence == last for op in self.kept.pending) else None

    def view(self) -> RankView:
        """What the rules of noticing look at."""
        return RankView(
            rank=self.key.rank,
            state=self.state,
            has_agent=self.facts is not None,
            silent=self.silent_looks >= (1 if self.state is RankState.STOPPED else 2),
            exit=self.exit,
            pending=self.pending,
            pending_since_s=self.pending_since_s,
            unhealthy=self.unhealthy,
            ahead_ns=self.ahead_ns,
            operations_begun=self.progress is not None and self.progress.last_operation_ns > 0,
            counts_operations=self.operations is not None,
            progress_s=self.progress_s,
            entered={count.name: count.collectives for count in self.counts()} if self.orderly_exit else {},
        )

    def counts(self) -> tuple[GroupCount, ...]:
        """The agent's own counts, as of now."""
        return () if self.operations is None or self.facts is None else count_groups(self.operations, self.facts)

    def trace_is_outdated(self) -> bool:
        """Whether the rank has begun an operation since it was last looked at, by its agent's count."""
        if self.operations is None or self.last_trace_ns is None:
            return False
        return self.operations.progress().last_operation_ns - self.ahead_ns > self.last_trace_ns

    def freeze(self, control: ControlDirectory | None) -> None:
        """A pull begins: the manifest keeps what is so now, whatever becomes of the process when the job is ended."""
        if control is not None:
            self.facts = control.facts(self.key) or self.facts
        self._frozen = self._record_now(self.counts())

    def recount(self) -> None:
        """The pull is over: what the rank entered meanwhile is in its dump, so it belongs to the counts beside it."""
        if self._frozen is not None:
            self._frozen = msgspec.structs.replace(self._frozen, counts=self.counts())

    def thaw(self) -> None:
        """The job goes on, so what is so now counts again."""
        self._frozen = None

    def record(self) -> RankPull:
        """What the manifest says of this rank. A bad end announced after the pull is added to what was so then."""
        frozen = self._frozen
        if frozen is None:
            return self._record_now(())
        end = frozen.exit if frozen.exit is not None or self.orderly_exit else self.exit
        answered = frozen.answered if self.pull_answered is None else self.pull_answered
        return msgspec.structs.replace(frozen, exit=end, answered=answered, notes=tuple(self.notes))

    def _record_now(self, counts: tuple[GroupCount, ...]) -> RankPull:
        return RankPull(
            rank=self.key.rank,
            attempt=self.key.attempt,
            pid=self.pid,
            state=self.state,
            answered=self.has_answered if self.pull_answered is None else self.pull_answered,
            exit=self.exit,
            last_trace_ns=self.last_trace_ns,
            notes=tuple(self.notes),
            counts=counts,
        )

    def retire(self) -> None:
        """A later attempt has begun, or the watching is over: lets go of the ops file and the traces."""
        if self.operations is not None:
            self.operations.close()
            self.operations = None
        self.traces = {}
        self.kept = None
