"""How one rank stands in one group, and what that makes of each of its cells."""

from dataclasses import dataclass, replace

from hangdrill.model.diagnosis import StuckOperation
from hangdrill.report.story.slices import Track
from hangdrill.report.story.values import Cell, Role

__all__ = ["Standing", "cell_of"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What decides on a rank's cells; ranks with equal standings have equal cells.

    track: what it recorded there. knows_end: what comes after was not entered. has_start: nothing was forgotten.
    is_inferred: it is called absent although its record does not say so. is_odd: the diagnosis calls its part in the
    stuck operation a mismatch. differs: the size and dtype of that part.
    """

    track: Track | None
    has_dump: bool
    knows_end: bool
    has_start: bool
    role: Role
    is_culprit: bool
    is_inferred: bool
    is_odd: bool
    differs: str = ""

    @property
    def outlook(self) -> "Standing":
        """What of it is shown besides the cells: the role, whether it is a culprit, and what differs."""
        return replace(self, track=None, has_dump=True, knows_end=True, has_start=True, is_inferred=False, is_odd=False)

    def number(self, sequence: int) -> int | None:
        """The number of the name recorded under a sequence; None when nothing is."""
        track = self.track
        if track is None or not track.first <= sequence <= track.last:
            return None
        index = sequence - track.first
        return track.names[index] if track.states[index] != ord(Cell.UNKNOWN.value) else None


def cell_of(standing: Standing, sequence: int, stuck: StuckOperation | None) -> Cell:
    """The cell of a sequence. The diagnosis knows more than the record (reports, counts), so its word goes first."""
    is_stuck = stuck is not None and sequence == stuck.sequence
    if not standing.has_dump:
        return Cell.INFERRED if is_stuck and standing.role is Role.ABSENT else Cell.NO_DUMP
    if standing.role is Role.ABSENT and stuck is not None and not stuck.p2p and sequence >= stuck.sequence:
        if standing.is_inferred:
            return Cell.INFERRED if is_stuck else Cell.UNKNOWN
        return Cell.ABSENT
    track = standing.track
    if track is not None and track.first <= sequence <= track.last:
        return Cell(chr(track.states[sequence - track.first]))
    if is_stuck and standing.role is Role.WAITING:
        return Cell.PENDING
    ended = standing.has_start if track is None else sequence > track.last
    return Cell.ABSENT if ended and standing.knows_end else Cell.UNKNOWN
