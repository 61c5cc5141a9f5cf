"""Do the hosts' clocks agree, and is there memory for the ranks? Pure."""

from collections.abc import Iterator

from hangdrill.model.preflight import Finding
from hangdrill.preflight.catalogue import found
from hangdrill.preflight.surroundings import Surroundings

__all__ = ["host_findings"]

BYTES_OF_A_RANK = 512 << 20
"""torch for CPU takes 220 MiB of a process before it does anything, with CUDA more; torchrun is one too."""


def host_findings(facts: Surroundings) -> Iterator[Finding]:
    """All of this family."""
    if (facts.job.nnodes or 1) > 1:
        yield from _clock(facts)
    yield from _memory(facts)


def _clock(facts: Surroundings) -> Iterator[Finding]:
    """One host has one clock; several are compared whenever their dumps are."""
    mend = "run chronyd, systemd-timesyncd or ntpd on every host of the job: timedatectl says whether one does"
    if facts.machine.clock_synchronised is None:
        what = "whether anything keeps this host's clock right could not be seen"
        yield found("clock-not-seen", what=what, where="adjtimex", mend="run preflight on a host of the job")
    elif not facts.machine.clock_synchronised:
        what = "nothing keeps this host's clock right: the times in dumps of different hosts cannot be compared"
        yield found("clock-not-synchronised", what=what, where="adjtimex", mend=mend)


def _memory(facts: Surroundings) -> Iterator[Finding]:
    limits = (facts.job.memory_bytes, facts.machine.memory_limit_bytes)
    limit_bytes = min((each for each in limits if each is not None), default=None)
    if limit_bytes is None or facts.job.nproc_per_node is None:
        return
    needed_bytes = BYTES_OF_A_RANK * (facts.job.nproc_per_node + 1)
    if limit_bytes < needed_bytes:
        what = (
            f"{limit_bytes >> 20} MiB for {facts.job.nproc_per_node} ranks and torchrun: a rank that the kernel's OOM "
            "killer ends leaves no dump"
        )
        where = "job.memory" if facts.job.memory_bytes == limit_bytes else "the cgroup's memory limit"
        yield found("memory-limit-small", what=what, where=where, mend=f"give {needed_bytes >> 20} MiB or more")
