"""Is the stack one that was measured, and how long will its road back last? Pure."""

from collections.abc import Iterator

from hangdrill.model.preflight import Finding
from hangdrill.preflight.backend import is_nccl, requested, version
from hangdrill.preflight.catalogue import found
from hangdrill.preflight.surroundings import Surroundings
from hangdrill.preflight.variables import is_rollback

__all__ = ["version_findings"]

VARIABLE = "TORCH_DIST_USE_NCCL2"
OLDEST = (2, 11)
KNOWS_THE_VARIABLE = (2, 14)


def version_findings(facts: Surroundings) -> Iterator[Finding]:
    """All of this family."""
    yield from _torch(facts)
    yield from _nccl(facts)
    yield from _rollback(facts)


def _torch(facts: Surroundings) -> Iterator[Finding]:
    if facts.torch is None:
        what = f"torch could not be asked: {facts.torch_problem or 'no answer'}"
        mend = "install torch 2.11 or newer there, or name the ranks' interpreter with --python"
        yield found("torch-not-known", what=what, where="torch", mend=mend)
        return
    number = version(facts)
    if number is None or number < OLDEST:
        what = f"torch {facts.torch.version}: nothing that is said here was measured with it"
        yield found("torch-too-old", what=what, where="torch", mend="use torch 2.11 or newer")


def _nccl(facts: Surroundings) -> Iterator[Finding]:
    torch = facts.torch
    if torch is None or torch.nccl is None or not is_nccl(facts):
        return
    name, oldest = ("RCCL", (2, 30, 7)) if torch.is_hip else ("NCCL", (2, 29))
    if torch.nccl < oldest:
        has, needs = (".".join(map(str, number)) for number in (torch.nccl, oldest))
        what = f"{name} {has} cannot reconfigure a group: a job cannot shrink around a lost rank"
        yield found("nccl-too-old", what=what, where=name, mend=f"use {name} {needs} or newer")


def _rollback(facts: Surroundings) -> Iterator[Finding]:
    value, torch = facts.environ.get(VARIABLE), version(facts)
    is_read = torch is None or torch >= KNOWS_THE_VARIABLE
    used = requested(facts) == "nccl-legacy" or (is_rollback(facts.environ) and requested(facts) in ("nccl", None))
    if value is not None and not is_read:
        what = f"torch {facts.torch.version if facts.torch else ''} does not read {VARIABLE}"
        yield found("rollback-not-read", what=what, where=f"{VARIABLE}={value}", mend="unset it")
    elif value is not None and value not in ("0", "1"):
        what = f"{VARIABLE}={value} does not roll back: only the exact value 0 does, and the new backend would run"
        yield found("rollback-misspelled", what=what, where=VARIABLE, mend=f"set {VARIABLE}=0, or unset it")
    elif used and is_read:
        what = "the legacy backend is used: it and its switch go away in the release after 2.15"
        where = f"{VARIABLE}=0" if is_rollback(facts.environ) else "nccl-legacy"
        mend = 'drill the new default with trigger = "collector" before then'
        yield found("rollback-used", what=what, where=where, mend=mend)
