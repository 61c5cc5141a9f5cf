"""What the checklist shows, as text that is ready to be laid out. The templates decide nothing."""

import msgspec

__all__ = ["Checklist", "Grid", "Row", "Section", "SignOff"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line. numbers: "21.4 -> 25.9 s, x 1.21 (1.18 to 1.24), 12 and 12 runs"; empty when nothing was measured."""

    id: str
    verdict: str
    topology: str
    claim: str
    detail: str
    mend: str
    numbers: str
    rule: str
    evidence: tuple[str, ...]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One item of the record."""

    title: str
    verdict: str
    rows: tuple[Row, ...]


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A table: its title, the heads of its columns, and its rows."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class SignOff(msgspec.Struct, frozen=True, kw_only=True):
    """A line to sign on. name: filled in where it is known."""

    role: str
    name: str = ""


class Checklist(msgspec.Struct, frozen=True, kw_only=True):
    """The whole page. facts: name and text."""

    title: str
    verdict: str
    sentence: str
    counts: str
    facts: tuple[tuple[str, str], ...]
    stacks: Grid
    sections: tuple[Section, ...]
    grids: tuple[Grid, ...]
    """Differences, checkpoint pairs, roads back, controls, work, what is unresolved, cells."""
    sign_offs: tuple[SignOff, ...]
    foot: str
