"""PASS, FAIL or UNKNOWN, and the rule by which verdicts merge. No evidence is UNKNOWN, never PASS."""

from collections.abc import Iterable
from enum import Enum

from hangdrill.model.errors import ExitCode

__all__ = ["Verdict", "merge"]


class Verdict(Enum):
    """What a check, or a whole drill, came to. It has no truth value: compare it by name."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        raise TypeError("a verdict has three values, so it has no truth value: compare it with `is Verdict.PASS`")

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a command that ends with this verdict."""
        return {"pass": ExitCode.PASS, "fail": ExitCode.FAIL, "unknown": ExitCode.UNKNOWN}[self.value]


def merge(verdicts: Iterable[Verdict]) -> Verdict:
    """FAIL over UNKNOWN over PASS; of nothing at all: UNKNOWN."""
    seen = set(verdicts)
    if Verdict.FAIL in seen:
        return Verdict.FAIL
    if Verdict.UNKNOWN in seen or not seen:
        return Verdict.UNKNOWN
    return Verdict.PASS
