"""Are the variables spelled so that torch reads them, once, with a value it can read? Pure."""

import difflib
from collections.abc import Iterator

from hangdrill.model.preflight import Finding
from hangdrill.preflight.backend import Implementation, implementation, version
from hangdrill.preflight.catalogue import found
from hangdrill.preflight.surroundings import Surroundings
from hangdrill.preflight.variables import (
    BY_NAME,
    CHECKED_WITH,
    FALSE,
    FAMILIES,
    TRUE,
    VARIABLES,
    Kind,
    Variable,
    set_names,
)

__all__ = ["variable_findings"]

INSTEAD = {
    "TORCH_NCCL_FLIGHT_RECORDER_ENABLED": "TORCH_FR_BUFFER_SIZE=2000",
    "TORCH_FLIGHT_RECORDER_ENABLED": "TORCH_FR_BUFFER_SIZE=2000",
    "TORCH_NCCL_FLIGHT_RECORDER_BUFFER_SIZE": "TORCH_FR_BUFFER_SIZE=2000",
}
"""Names that are passed around and that torch does not read; what does what they promise."""


def variable_findings(facts: Surroundings) -> Iterator[Finding]:
    """All of this family."""
    yield from _unknown(facts)
    for variable in VARIABLES:
        names = list(set_names(variable.name, facts.environ))
        yield from _spellings(variable, names, facts)
        yield from _value(variable, names, facts)
        if variable.legacy_only and names:
            yield from _legacy_only(variable, names[0], facts)


def _unknown(facts: Surroundings) -> Iterator[Finding]:
    for name in sorted(facts.environ):
        if not _is_unread(name, facts):
            continue
        close = difflib.get_close_matches(name, BY_NAME, n=1, cutoff=0.75)
        instead = INSTEAD.get(name) or (BY_NAME[close[0]].name if close else "")
        yield found(
            "variable-unknown",
            what=f"{_torch(facts)} reads no variable of this name: it does nothing",
            where=f"{name}={facts.environ[name]}",
            mend=f"use {instead}" if instead else "remove it",
        )


def _is_unread(name: str, facts: Surroundings) -> bool:
    """By the files of the ranks' own torch; by the table where they were not searched."""
    if not name.startswith(FAMILIES):
        return False
    reads = facts.torch.reads.get(name) if facts.torch is not None else None
    return name not in BY_NAME if reads is None else not reads


def _release(facts: Surroundings) -> str:
    """ "2.15."; another release may have taught the new backend what the old one knew."""
    return ".".join(map(str, (version(facts) or (0,))[:2])) + "."


def _torch(facts: Surroundings) -> str:
    return f"torch {facts.torch.version if facts.torch is not None else CHECKED_WITH}"


def _spellings(variable: Variable, names: list[str], facts: Surroundings) -> Iterator[Finding]:
    values = [facts.environ[name] for name in names]
    if len(set(values)) > 1:
        what = f"both spellings are set, with different values: torch takes {names[0]}={values[0]}"
        where = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
        yield found("variable-both-spellings", what=what, where=where, mend=f"unset {', '.join(names[1:])}")
    elif names and names[0] != variable.name:
        what = f"an old spelling: torch reads it as long as {variable.name} is not set, and warns"
        yield found("variable-deprecated", what=what, where=names[0], mend=f"use {variable.name}")


def _value(variable: Variable, names: list[str], facts: Surroundings) -> Iterator[Finding]:
    """Every spelling is parsed by torch, also one that does not count."""
    for name in names:
        text = facts.environ[name]
        if _fits(variable.kind, text):
            continue
        wanted = "a whole number" if variable.kind is Kind.INT else "1 or 0"
        yield found(
            "variable-bad-value",
            what=f"torch cannot read {text!r}: the rank raises, aborts or hangs at its start, without a word of this",
            where=f"{name}={text}",
            mend=f"set it to {wanted}, or unset it",
        )


def _fits(kind: Kind, text: str) -> bool:
    if kind is Kind.BOOL:
        return text.lower() in TRUE + FALSE
    if kind is Kind.INT:
        sign_off = text.removeprefix("-")
        return sign_off.isascii() and sign_off.isdigit()
    return True


def _legacy_only(variable: Variable, name: str, facts: Surroundings) -> Iterator[Finding]:
    runs = implementation(facts)
    if runs in (None, Implementation.LEGACY) or not CHECKED_WITH.startswith(_release(facts)):
        return
    what = f"only the legacy NCCL backend reads it ({variable.does}), and this job would run {runs.value}"
    yield found("variable-not-for-backend", what=what, where=name, mend="remove it, or expect nothing of it")
