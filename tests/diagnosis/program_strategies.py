"""Random programs, faults and recordings for hypothesis.

A program is written as a list of operations in one global order, so without a fault it cannot hang: that is what
makes the injected fault the truth.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter
from simulated_dumps import DIALECTS, Recording
from simulator import Entry, Fault, Outcome, Part, Program, Step, Team, execute

__all__ = ["Case", "cases", "mesh", "program_of", "ring", "swap", "transfer"]

OPS = (
    "all_reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "barrier",
    "all_to_all",
    "gather",
)
FAULTS = (
    "none",
    "hold",
    "hold",
    "hold",
    "exit",
    "kill",
    "skip",
    "wrong-op",
    "wrong-shape",
    "wrong-dtype",
    "invert",
    "stall",
)
Written = tuple[dict[int, Step], ...]


@dataclass(frozen=True, repr=False)
class Case:
    """One run and how it was recorded. launch_groups, world_known: what the diagnosis is told besides the dumps."""

    outcome: Outcome
    how: Recording
    launch_groups: bool
    world_known: bool

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:
        printer.text(repr(self))

    def __repr__(self) -> str:
        """The run as a person wants to read it: one line a rank, `!` after what is pending for good."""
        lines = [f"{self.how}, groups told: {self.launch_groups}, world told: {self.world_known}"]
        lines += [f"group {team.name} {team.desc} {team.ranks}" for team in self.outcome.program.teams]
        lines += [f"{fault}, lookahead {self.outcome.lookahead}" for fault in self.outcome.faults]
        for rank, entries in enumerate(self.outcome.entries):
            lines.append(f"rank {rank}: " + ", ".join(_sketch(entry) for entry in entries))
        return "\n".join(["", *lines, ""])


def _sketch(entry: Entry) -> str:
    step = entry.step
    parts = " ".join(f"{'->' if part.send else '<-'}{part.peer}" for part in step.parts)
    return f"{step.op}{parts} {step.team.name}{step.team.ranks}#{entry.sequence}{'!' * entry.pending}"


def program_of(teams: Sequence[Team], written: Written, world: int) -> Program:
    """Each rank's own steps of the operations written in global order."""
    labelled = [(label, by_rank) for label, by_rank in enumerate(written)]
    return Program(
        tuple(teams),
        tuple(
            tuple(dataclasses.replace(by_rank[rank], label=label) for label, by_rank in labelled if rank in by_rank)
            for rank in range(world)
        ),
    )


def transfer(team: Team, source: int, target: int, *, batched: bool = False) -> dict[int, Step]:
    """A send from one global rank to another; batched: as a batch of one, as pipelines often write it."""
    return {
        source: Step(team, op="send", parts=(Part(True, target),), batched=batched),
        target: Step(team, op="recv", parts=(Part(False, source),), batched=batched),
    }


def swap(team: Team, one: int, other: int) -> dict[int, Step]:
    """Two ranks send to each other and receive from each other, in one batch."""
    return {
        one: Step(team, op="batch", parts=(Part(True, other), Part(False, other)), batched=True),
        other: Step(team, op="batch", parts=(Part(False, one), Part(True, one)), batched=True),
    }


def ring(team: Team) -> dict[int, Step]:
    """Everybody sends to the next and receives from the one before, in one batch."""
    size = len(team.ranks)
    return {
        rank: Step(
            team,
            op="batch",
            parts=(Part(True, team.ranks[(i + 1) % size]), Part(False, team.ranks[i - 1])),
            batched=True,
        )
        for i, rank in enumerate(team.ranks)
    }


def mesh(rows: int, columns: int, *, same_name: bool = False) -> list[Team]:
    """The row and column groups of a device mesh; with same_name, as `split_group` names them."""
    row_ranks = [tuple(range(r * columns, (r + 1) * columns)) for r in range(rows)]
    column_ranks = [tuple(range(c, rows * columns, columns)) for c in range(columns)]
    return [Team("row" if same_name else str(i + 1), "mesh_tp", ranks) for i, ranks in enumerate(row_ranks)] + [
        Team("col" if same_name else str(rows + i + 1), "mesh_dp", ranks) for i, ranks in enumerate(column_ranks)
    ]


@st.composite
def _teams(draw: st.DrawFn, world: int) -> list[Team]:
    teams = [Team("0", "default_pg", tuple(range(world)))]
    layout = draw(st.sampled_from(["default", "random", "mesh"]))
    widths = [width for width in range(2, world) if world % width == 0]
    if layout == "mesh" and widths:
        columns = draw(st.sampled_from(widths))
        return teams + mesh(world // columns, columns, same_name=draw(st.booleans()))
    for number in range(draw(st.integers(1, 3)) if layout == "random" else 0):
        ranks = draw(st.sets(st.integers(0, world - 1), min_size=1, max_size=world))
        desc = draw(st.sampled_from(["undefined", "tp", "pp"]))
        order = sorted(ranks, reverse=draw(st.booleans()))
        teams.append(Team(str(number + 1), desc, tuple(order)))
    return teams


@st.composite
def _operation(draw: st.DrawFn, teams: list[Team]) -> dict[int, Step]:
    team = draw(st.sampled_from(teams))
    kind = draw(st.sampled_from(["collective", "collective", "collective", "transfer", "ring", "swap", "batch of one"]))
    if kind != "collective" and len(team.ranks) > 1:
        if kind == "ring" and len(team.ranks) > 2:
            return ring(team)
        source, target = draw(st.permutations(team.ranks))[:2]
        if kind == "swap":
            return swap(team, source, target)
        return transfer(team, source, target, batched=kind == "batch of one")
    op = draw(st.sampled_from(OPS))
    root = draw(st.integers(0, len(team.ranks) - 1)) if op in {"broadcast", "reduce", "gather"} else 0
    step = Step(team, op, draw(st.sampled_from([(8,), (8,), (6, 2)])), root=root)
    return dict.fromkeys(team.ranks, step)


def _places(program: Program, kind: str) -> list[tuple[int, int]]:
    """Where a fault can be placed: (rank, index)."""
    found = []
    for rank, steps in enumerate(program.steps):
        for index, step in enumerate(steps):
            following = steps[index + 1] if index + 1 < len(steps) else None
            fits = {
                "invert": following is not None and following.team != step.team,
                "wrong-op": not step.p2p and step.op not in {"all_to_all", "barrier", "gather"},
                "wrong-shape": not step.p2p and step.op not in {"all_to_all", "barrier", "gather"},
                "wrong-dtype": not step.p2p and step.op != "barrier",
            }.get(kind, True)
            if fits and (len(step.team.ranks) > 1 or kind in {"hold", "exit", "kill", "skip", "invert"}):
                found.append((rank, index))
    return found


@st.composite
def _faults(draw: st.DrawFn, program: Program) -> tuple[Fault, ...]:
    kind = draw(st.sampled_from(FAULTS))
    places = [] if kind == "none" else _places(program, kind)
    if not places:
        return ()
    first = Fault(kind, *draw(st.sampled_from(places)))
    if kind == "hold" and draw(st.integers(0, 3)) == 0:
        others = [place for place in places if place[0] != first.rank]
        if others:
            return (first, Fault(kind, *draw(st.sampled_from(others))))
    return (first,)


@st.composite
def cases(draw: st.DrawFn, *, plain: bool = False) -> Case:
    """A run and its recording. plain: with all the evidence there is."""
    world = draw(st.sampled_from([2, 2, 3, 3, 4, 4, 5, 6, 8, 12, 16]))
    teams = draw(_teams(world))
    written = tuple(draw(st.lists(_operation(teams), min_size=1, max_size=14)))
    program = program_of(teams, written, world)
    faults = draw(_faults(program))
    eager = bool(not faults or faults[0].kind in {"hold", "exit", "kill"}) and draw(st.booleans())
    lookahead = draw(st.sampled_from([1, 1, 2, 4, 16]))
    outcome = execute(program, faults, lookahead=lookahead, serial=draw(st.booleans()), eager=eager)
    how = Recording(
        dialect=draw(st.sampled_from(DIALECTS)),
        versions=draw(st.sampled_from([((2, 10),), ((2, 9),), ((2, 9), (2, 10))])),
        timing=draw(st.booleans()),
        lag=draw(st.booleans()),
    )
    if plain:
        return Case(outcome, how, launch_groups=True, world_known=True)
    lost = draw(st.sets(st.integers(0, world - 1), max_size=min(2, world - 1)))
    how = dataclasses.replace(
        how,
        window=draw(st.sampled_from([2000, 2000, 3, 5, 9])),
        only_active=draw(st.booleans()),
        lost=frozenset(lost),
        skew_s=draw(st.dictionaries(st.integers(0, world - 1), st.sampled_from([-14, 3, 14]), max_size=2)),
        cut=draw(st.dictionaries(st.integers(0, world - 1), st.integers(0, 20), max_size=1)),
    )
    return Case(outcome, how, launch_groups=draw(st.booleans()), world_known=draw(st.booleans()))
