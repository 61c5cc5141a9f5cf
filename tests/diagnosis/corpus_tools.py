"""How the cases of the corpus are built: a run, its recording, and the answer, written by hand beside it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from program_strategies import Written, program_of
from simulated_dumps import Recording
from simulator import Fault, Outcome, Step, Team, execute

__all__ = ["CorpusCase", "all_of", "doubtful", "hang", "healthy", "places", "run", "team", "world"]

HANG, NO_HANG, UNDECIDED = "hang", "no-hang", "undecided"


@dataclass(frozen=True)
class CorpusCase:
    """A named run, its recording and its answer.

    verdicts and kinds: every word that is right. culprits: whom to name when there is certainty. may: who can be named
    without naming an innocent (a cycle, for instance).
    """

    name: str
    outcome: Outcome
    how: Recording
    verdicts: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    culprits: tuple[int, ...] = ()
    may: tuple[int, ...] = ()
    launch_groups: bool = True


def world(size: int) -> Team:
    return Team("0", "default_pg", tuple(range(size)))


def team(name: str, *ranks: int, desc: str = "undefined") -> Team:
    return Team(name, desc, ranks)


def all_of(group: Team, op: str = "all_reduce", *, root: int = 0, shape: tuple[int, ...] = (8,)) -> dict[int, Step]:
    return dict.fromkeys(group.ranks, Step(group, op, shape, root=root))


def run(
    teams: Sequence[Team],
    written: Written,
    *faults: Fault,
    lookahead: int = 1,
    serial: bool = True,
    eager: bool = False,
) -> Outcome:
    program = program_of(teams, written, len(teams[0].ranks))
    return execute(program, faults, lookahead=lookahead, serial=serial, eager=eager)


def hang(name: str, outcome: Outcome, kind: str | tuple[str, ...], *culprits: int, **how: object) -> CorpusCase:
    kinds = (kind,) if isinstance(kind, str) else kind
    return CorpusCase(name, outcome, Recording(**how), (HANG,), kinds, culprits, culprits)


def healthy(name: str, outcome: Outcome, *, doubt: bool = False, **how: object) -> CorpusCase:
    verdicts = (NO_HANG, UNDECIDED) if doubt else (NO_HANG,)
    return CorpusCase(name, outcome, Recording(**how), verdicts)


def doubtful(
    name: str,
    outcome: Outcome,
    kinds: Iterable[str] = (),
    *,
    may: Sequence[int] = (),
    sure: bool = False,
    **how: object,
) -> CorpusCase:
    """Undecided is right; `sure`: so is the word hang, as long as nobody outside `may` is named."""
    verdicts = (HANG, UNDECIDED) if sure else (UNDECIDED,)
    return CorpusCase(name, outcome, Recording(**how), verdicts, tuple(kinds), (), tuple(may))


def places(size: int) -> tuple[tuple[str, int], ...]:
    return ("first", 0), ("middle", size // 2), ("last", size - 1)
