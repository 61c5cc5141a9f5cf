"""What the story consists of. Frozen, of bounded size, and ready to be shown: no raw text of a dump is in it."""

from enum import Enum

import msgspec

__all__ = [
    "Cell",
    "CulpritRow",
    "Gap",
    "Mark",
    "Picture",
    "PictureRow",
    "Place",
    "Role",
    "Story",
    "StuckRow",
    "Timeline",
    "TimelineRow",
]


class Role(Enum):
    """What a rank is to the stuck operation."""

    WAITING = "waiting"
    ABSENT = "absent"
    ELSEWHERE = "waits elsewhere"
    """Inside of another operation that is not over."""
    UNKNOWN = "unknown"
    """A member of whom nobody can know."""
    IDLE = ""


class Cell(Enum):
    """One rank at one sequence of a group; the value is the letter in PictureRow.cells."""

    COMPLETED = "c"
    PENDING = "p"
    ABSENT = "a"
    MISMATCH = "m"
    ISSUED = "i"
    """Recorded as completed when it was issued: that proves nothing (batched p2p of nccl2)."""
    UNKNOWN = "u"
    """Outside of what the rank's ring buffer kept, or of what its dump lists."""
    NO_DUMP = "n"
    INFERRED = "x"
    """No dump, or none that tells, and the peers waited: absent by inference only."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where an operation was called. text: the innermost frame of the user's code, "train.py:42 in main"; users is
    False when all frames are torch's or the standard library's. stack: "file:line in name", innermost first,
    bounded."""

    text: str = ""
    users: bool = False
    stack: tuple[str, ...] = ()


class StuckRow(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that stand alike. operation: what they are inside of or, of absent ranks, the last one they finished.
    after_s: least and most time from the stall's beginning to their entering it, None when not known. inferred: their
    record does not say that they are absent, and its last operation may not be their last."""

    ranks: tuple[int, ...]
    role: Role
    operation: str = ""
    place: Place = Place()
    after_s: tuple[float, float] | None = None
    is_culprit: bool = False
    has_dump: bool = True
    inferred: bool = False


class CulpritRow(msgspec.Struct, frozen=True, kw_only=True):
    """A culprit with its basis in a word and why it is named."""

    ranks: tuple[int, ...]
    basis: str
    why: str


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One operation on the timeline, of one or many ranks. Seconds from the stall: the median, the least, the most."""

    label: str
    pending: bool
    at_s: float
    from_s: float
    to_s: float


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """The last operations of ranks that did the same, oldest first."""

    ranks: tuple[int, ...]
    role: Role
    is_culprit: bool
    marks: tuple[Mark, ...]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Around the stall. zero: what second 0 is. hidden: how many ranks have no row, to keep it short."""

    zero: str = ""
    rows: tuple[TimelineRow, ...] = ()
    hidden: int = 0


class PictureRow(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks whose cells are equal.

    runs: first and last rank of each run, bounded. cells: run-length encoded, "180c1p9a". odd: operations that differ
    from the column's, by column.
    """

    label: str
    count: int
    runs: tuple[tuple[int, int], ...]
    role: Role
    is_culprit: bool
    cells: str
    odd: tuple[tuple[int, str], ...] = ()


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Rank by sequence of one group.

    number: its place among the story's pictures. whose: its members. awaits_culprit: a culprit is a member, and
    something is pending. first: sequence of the first column. names: run-length (columns, operation).
    """

    number: int
    title: str
    whose: str
    is_stuck: bool
    awaits_culprit: bool
    p2p: bool
    first: int
    columns: int
    stuck: int | None
    names: tuple[tuple[int, str], ...]
    rows: tuple[PictureRow, ...]
    entered_ms: tuple[tuple[int, float], ...] = ()
    """When each rank entered the stuck operation, in ms after the first: for the hover text."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of evidence that is missing, and what it would have told. file: of an unreadable dump."""

    word: str
    ranks: tuple[int, ...]
    detail: str = ""
    told: str


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """All that is shown of an incident."""

    sentence: str
    verdict: str
    kind: str
    operation: str
    group_ranks: str
    dumps: str
    stuck: tuple[StuckRow, ...] = ()
    stuck_hidden: int = 0
    culprits: tuple[CulpritRow, ...] = ()
    timeline: Timeline = Timeline()
    pictures: tuple[Picture, ...] = ()
    groups_hidden: int = 0
    gaps: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
