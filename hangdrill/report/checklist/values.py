"""What the checklist shows, as text that is ready to be laid out. The templates decide nothing."""

import msgspec

__all__ = ["Checklist", "Grid", "OpenLine", "Row", "Section", "SignOff"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line. numbers: (name, text), each shown once: ("baseline", "21.4 s"), ("ratio", "1.21"); () when nothing was
    measured. remark: what else was seen. mend: empty where the line passes."""

    id: str
    verdict: str
    topology: str
    claim: str
    numbers: tuple[tuple[str, str], ...]
    remark: str
    mend: str
    rule: str
    evidence: tuple[str, ...]


class OpenLine(msgspec.Struct, frozen=True, kw_only=True):
    """What does not pass, for the top of the page: a line, or several for the same reason. id: of the first of them."""

    verdict: str
    what: str
    mend: str
    id: str


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
    open: tuple[OpenLine, ...]
    stacks: Grid
    sections: tuple[Section, ...]
    grids: tuple[Grid, ...]
    """Differences, checkpoint pairs, roads back, controls, work, what is unresolved, cells."""
    sign_offs: tuple[SignOff, ...]
    foot: str
