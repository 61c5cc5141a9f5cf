"""A small simulator of a distributed program that may hang, independent of hangdrill.

A `Program` is, for every rank, a tuple of `Step`s: a collective in a team, or one or more point-to-point parts.
`inject` places faults, `execute` runs the ranks until nobody can move and returns what each of them really did.
It knows the whole truth; `simulated_truth` reads it and `simulated_dumps` writes what a recorder would have seen of it.

How a step finishes: a collective when all members of its team reached their nth collective of that team with the same
operation, shape and type; a send when the receiver reached the matching receive of the same pair, and the other way
round; a batch when all its parts are matched. A rank issues at most `lookahead` unfinished steps (1: it blocks, as gloo
does; more: it enqueues ahead, as NCCL does) and, when `serial`, finishes them in the order of its program.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

__all__ = ["Entry", "Fault", "Outcome", "Part", "Program", "Step", "Team", "execute", "inject"]


@dataclass(frozen=True)
class Team:
    """A process group. `ranks` are global, in the order of their group ranks."""

    name: str
    desc: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """One send or receive. `peer` is global."""

    send: bool
    peer: int


@dataclass(frozen=True)
class Step:
    """One operation of one rank: a collective (`parts` empty) or point-to-point (one part, or a batch of them)."""

    team: Team
    op: str = "all_reduce"
    shape: tuple[int, ...] = (8,)
    dtype: str = "Float"
    root: int = 0
    parts: tuple[Part, ...] = ()
    batched: bool = False
    label: int = -1
    """Which step of the program as it was written: the same for all ranks of it, and kept by the faults."""

    @property
    def p2p(self) -> bool:
        return bool(self.parts)

    @property
    def signature(self) -> tuple[object, ...]:
        """What all members must agree on: of shapes the number of elements, of some operations not even that."""
        return (self.op, None if self.op in {"all_to_all", "barrier"} else prod(self.shape), self.dtype, self.root)


@dataclass(frozen=True)
class Program:
    """The steps of each rank, by rank."""

    teams: tuple[Team, ...]
    steps: tuple[tuple[Step, ...], ...]

    @property
    def world(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class Fault:
    """kind: hold, exit, kill, skip, wrong-op, wrong-shape, wrong-dtype, invert or stall, at a step of a rank."""

    kind: str
    rank: int
    index: int


@dataclass
class Entry:
    """A step that a rank issued. collective and p2p count from 1 within the rank and the team."""

    step: Step
    sequence: int
    op_id: int
    created: int
    executed: bool = False
    finished: int | None = None

    @property
    def pending(self) -> bool:
        return self.finished is None


@dataclass(frozen=True)
class Outcome:
    """Where every rank stood when nobody could move any more. Times are ticks."""

    program: Program
    faults: tuple[Fault, ...]
    entries: tuple[tuple[Entry, ...], ...]
    issued_all: tuple[bool, ...]
    lookahead: int
    killed: frozenset[int] = frozenset()

    @property
    def hung(self) -> bool:
        return any(entry.pending for entries in self.entries for entry in entries)


def inject(program: Program, faults: Iterable[Fault]) -> tuple[Program, frozenset[int]]:
    """The program with its faults, and the labels of the steps that nobody will finish."""
    steps = [list(one) for one in program.steps]
    stalled = set()
    for fault in sorted(faults, key=lambda one: (one.rank, -one.index)):
        mine, at = steps[fault.rank], fault.index
        match fault.kind:
            case "hold" | "exit" | "kill":
                del mine[at:]
            case "skip":
                del mine[at]
            case "wrong-op":
                wrong = "broadcast" if mine[at].op != "broadcast" else "all_reduce"
                mine[at] = dataclasses.replace(mine[at], op=wrong)
            case "wrong-shape":
                mine[at] = dataclasses.replace(mine[at], shape=(7,))
            case "wrong-dtype":
                mine[at] = dataclasses.replace(mine[at], dtype="Double")
            case "invert":
                mine[at], mine[at + 1] = mine[at + 1], mine[at]
            case "stall":
                stalled.add(mine[at].label)
            case _:
                raise ValueError(fault.kind)
    return Program(program.teams, tuple(tuple(one) for one in steps)), frozenset(stalled)


def execute(
    program: Program, faults: Sequence[Fault] = (), *, lookahead: int = 1, serial: bool = True, eager: bool = False
) -> Outcome:
    """Run until nobody can move. `eager`: senders, the root of a broadcast and the leaves of a reduce do not wait."""
    broken, stalled = inject(program, faults)
    machine = _Machine(broken, stalled, lookahead, serial, eager)
    while machine.issue() | machine.finish():
        pass
    killed = frozenset(fault.rank for fault in faults if fault.kind == "kill")
    done = tuple(len(e) == len(s) for e, s in zip(machine.entries, broken.steps, strict=True))
    return Outcome(program, tuple(faults), tuple(map(tuple, machine.entries)), done, lookahead, killed)


@dataclass
class _Machine:
    """The state of all ranks while they run."""

    program: Program
    stalled: frozenset[int]
    lookahead: int
    serial: bool
    eager: bool
    clock: int = 0
    entries: list[list[Entry]] = field(init=False)
    pending: list[list[Entry]] = field(init=False)
    counts: dict[tuple[int, Team, str], int] = field(default_factory=dict)
    meeting: dict[tuple[Team, int], dict[int, Entry]] = field(default_factory=dict)
    posted: dict[tuple[Team, int, int, bool], list[Entry]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.entries = [[] for _ in self.program.steps]
        self.pending = [[] for _ in self.program.steps]

    def issue(self) -> bool:
        """Every rank that may issues its next step."""
        moved = False
        for rank, steps in enumerate(self.program.steps):
            while len(self.entries[rank]) < len(steps) and len(self.pending[rank]) < self.lookahead:
                self._enter(rank, steps[len(self.entries[rank])])
                moved = True
        return moved

    def _enter(self, rank: int, step: Step) -> None:
        self.clock += 1
        sequence = self._count(rank, step.team, "p2p" if step.p2p else "collective")
        entry = Entry(step, sequence, self._count(rank, step.team, "any"), self.clock)
        self.entries[rank].append(entry)
        self.pending[rank].append(entry)
        if not step.p2p:
            self.meeting.setdefault((step.team, sequence), {})[rank] = entry

    def _count(self, rank: int, team: Team, what: str) -> int:
        key = (rank, team, what)
        self.counts[key] = self.counts.get(key, 0) + 1
        return self.counts[key]

    def finish(self) -> bool:
        """Whatever can start starts, and whatever can finish finishes."""
        for rank, waiting in enumerate(self.pending):
            for position, entry in enumerate(waiting):
                if not entry.executed and (
                    position == 0 or (not self.serial and self._free(waiting[:position], entry))
                ):
                    entry.executed = True
                    self._post(rank, entry)
        ready = [
            (rank, entry)
            for rank, waiting in enumerate(self.pending)
            for entry in waiting
            if entry.executed and self._met(rank, entry)
        ]
        for rank, entry in ready:
            self.clock += 1
            entry.finished = self.clock
            self.pending[rank].remove(entry)
        return bool(ready)

    def _free(self, earlier: Sequence[Entry], entry: Entry) -> bool:
        """Whether no earlier step of the rank holds this one back: the same team, or the same pair of it."""
        if not entry.step.p2p:
            return not any(one.step.team == entry.step.team and not one.step.p2p for one in earlier)
        mine = set(entry.step.parts)
        return not any(one.step.team == entry.step.team and mine & set(one.step.parts) for one in earlier)

    def _post(self, rank: int, entry: Entry) -> None:
        for part in entry.step.parts:
            self.posted.setdefault((entry.step.team, rank, part.peer, part.send), []).append(entry)

    def _met(self, rank: int, entry: Entry) -> bool:
        step = entry.step
        if step.label in self.stalled:
            return False
        if step.p2p:
            return all((self.eager and part.send) or self._matched(rank, entry, part) for part in step.parts)
        others = self.meeting[step.team, entry.sequence]
        if self.eager and step.op in {"broadcast", "reduce"}:
            return self._met_eagerly(rank, step, others)
        return (
            len(others) == len(step.team.ranks)
            and all(one.executed for one in others.values())
            and len({one.step.signature for one in others.values()}) == 1
        )

    def _met_eagerly(self, rank: int, step: Step, others: dict[int, Entry]) -> bool:
        root = step.team.ranks[step.root]
        if step.op == "broadcast":
            return rank == root or (root in others and others[root].executed)
        return rank != root or (len(others) == len(step.team.ranks) and all(o.executed for o in others.values()))

    def _matched(self, rank: int, entry: Entry, part: Part) -> bool:
        mine = self.posted[entry.step.team, rank, part.peer, part.send]
        theirs = self.posted.get((entry.step.team, part.peer, rank, not part.send), [])
        return len(theirs) > next(i for i, one in enumerate(mine) if one is entry)
