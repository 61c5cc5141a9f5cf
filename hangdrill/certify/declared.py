"""Whether the plan declares a difference: its patterns against the name of a fact, or the id of a line.

A pattern is one of fnmatch. "torch" stands for everything that is said of torch itself, "image" for the
image; a package, a variable and an
extension may be named without "package:", "env:" and "extension:".
"""

import fnmatch
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from hangdrill.model.fingerprint import Fingerprint, changes
from hangdrill.model.receipt import Difference, Line
from hangdrill.model.verdict import Verdict

__all__ = ["STACK_LINE", "accepted", "is_declared", "marked", "stack_differences"]

STACK_LINE = "differences/declared"


def is_declared(patterns: Iterable[str], *names: str) -> bool:
    """Whether one of the patterns fits one of the names."""
    forms = {form for name in names for form in _forms(name)}
    return any(fnmatch.fnmatchcase(form, pattern) for pattern in patterns for form in forms)


def _forms(name: str) -> Iterable[str]:
    yield name
    if ":" in name:
        yield name.partition(":")[2]
    for whole in ("torch", "image"):
        if name.startswith(f"{whole}."):
            yield whole


def marked(differences: Iterable[Difference], patterns: tuple[str, ...]) -> tuple[Difference, ...]:
    """The differences, each with `declared` as the plan has it."""
    return tuple(
        msgspec.structs.replace(one, declared=one.declared or is_declared(patterns, one.what, one.line))
        for one in differences
    )


def accepted(lines: Iterable[Line], differences: Sequence[Difference], patterns: tuple[str, ...]) -> Iterator[Line]:
    """The lines; one that fails for nothing but a difference that the plan declares passes, and says so."""
    whats: dict[str, list[str]] = {}
    for difference in differences:
        whats.setdefault(difference.line, []).append(difference.what)
    for line in lines:
        if line.declarable and line.verdict is Verdict.FAIL and is_declared(patterns, line.id, *whats.get(line.id, ())):
            detail = f"{line.detail}; the plan declares it"
            yield msgspec.structs.replace(line, verdict=Verdict.PASS, detail=detail, mend="")
        else:
            yield line


def stack_differences(baseline: Fingerprint, candidate: Fingerprint) -> tuple[Difference, ...]:
    """Every fact in which the fingerprints differ."""
    return tuple(
        Difference(line=STACK_LINE, what=change.what, baseline=change.before, candidate=change.after)
        for change in changes(baseline, candidate)
    )
