"""From the runs of the user's own script to lines: did it end, and did both sides do the same work? Pure.

How long it took and what memory it had are judged like every other measure (canary_lines.py).
"""

from collections.abc import Sequence

import msgspec

from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.canary_runs import PairRuns
from hangdrill.certify.cells import Claim
from hangdrill.certify.measures import MEGA, Measured
from hangdrill.certify.stacks import BASELINE, CANDIDATE
from hangdrill.model.certify_plan import Measure, Topology
from hangdrill.model.receipt import Difference, Item, Line
from hangdrill.model.verdict import Verdict

__all__ = ["MEMORY", "TIME", "ends_line", "measured_of_script", "same_work_line", "with_note"]

TIME, MEMORY = "whole-job-time", "memory-peak"
REPEAT = "let the script take its seed from HANGDRILL_SEED, and do a fixed number of steps"
LOGS = "see the logs beside runs.json"
MOST_RANKS, OPERATIONS = 4, 2

WORDS = (("collectives", "collectives"), ("p2p", "p2p operations"), ("steps", "optimizer steps"))
"""What is counted of a rank, and how it is called."""

Counts = tuple[tuple[int, ...], ...]
"""The numbers of WORDS of every rank, by rank."""


def measured_of_script(runs: PairRuns | None = None) -> tuple[Measured, ...]:
    """Time and memory. Memory is of the GPUs where any rank had one. runs: None before there are any."""
    every = (*runs.baseline, *runs.candidate) if runs is not None else ()
    name = "gpu_peak_bytes" if any(run.slowest("gpu_peak_bytes") for run in every) else "host_peak_bytes"
    time = Measured(
        name=TIME,
        measure=Measure.SCRIPT_TIME,
        item=Item.WORK,
        topology=Topology.SINGLE_NODE,
        claim="your script, from its start to the end of torchrun: the candidate is no slower than the baseline",
        sample=lambda run: run.wall_s if run.exit_code == 0 and not run.missing() else None,
    )
    memory = Measured(
        name=MEMORY,
        measure=Measure.MEMORY_PEAK,
        item=Item.MEMORY,
        topology=Topology.SINGLE_NODE,
        claim="the peak memory of your script's largest rank: the candidate's is no larger than the baseline's",
        sample=lambda run: _mega(run.slowest(name)) if run.exit_code == 0 else None,
    )
    return time, memory


def ends_line(claim: Claim, runs: PairRuns, evidence: tuple[str, ...] = ()) -> Line:
    """FAIL when runs fail on the candidate alone; UNKNOWN when they fail on the baseline too, which then proves
    nothing."""
    line = _line(claim, evidence)
    bad = {role: [run for run in getattr(runs, role) if run.exit_code != 0] for role in (BASELINE, CANDIDATE)}
    counts = {role: f"{len(bad[role])} of {len(getattr(runs, role))} on the {role}" for role in bad}
    if not runs.baseline or not runs.candidate:
        return msgspec.structs.replace(line, detail="no pair was run", mend="raise workload.pairs")
    if not bad[BASELINE] and not bad[CANDIDATE]:
        unseen = next((run for run in (*runs.baseline, *runs.candidate) if run.missing()), None)
        if unseen is not None:  # an exit code alone does not show that it was the script's
            return msgspec.structs.replace(line, detail=f"exit code 0, and {unseen.trouble()}", mend=LOGS)
        detail = f"{len(runs.baseline)} runs of each stack ended with exit code 0"
        return msgspec.structs.replace(line, verdict=Verdict.PASS, detail=detail)
    told = [f"{counts[role]}: {_why(bad[role][-1])}" for role in (BASELINE, CANDIDATE) if bad[role]]
    detail = f"runs that did not end with exit code 0: {'; '.join(told)}"
    if bad[BASELINE]:
        mend = f"it must work on the baseline first; {LOGS}"
        return msgspec.structs.replace(line, detail=detail, mend=mend)
    return msgspec.structs.replace(line, verdict=Verdict.FAIL, detail=detail, mend=f"{LOGS}, and mend the script")


def same_work_line(
    claim: Claim, runs: PairRuns, evidence: tuple[str, ...] = (), *, placement: str = "auto"
) -> tuple[Line, Difference | None]:
    """By the operations that every rank entered and the steps of its optimizers, in the runs that ended well. Other
    numbers on the candidate are a difference; a stack whose own runs differ can be compared with nothing."""
    line = _line(claim, evidence)
    ended = {role: [run for run in getattr(runs, role) if run.exit_code == 0] for role in (BASELINE, CANDIDATE)}
    found: dict[str, Counts] = {}
    for role, good in ended.items():
        counts = [_counts(run) for run in good]
        if not counts or None in counts:
            why = _uncounted(good) if counts else "no run of the script ended well"
            return msgspec.structs.replace(line, detail=f"{role}: {why}", mend=LOGS), None
        different = sorted({one for one in counts if one is not None})
        if len(different) > 1:
            detail = f"{role}: its own runs differ: {_text(different[0])} in one, {_text(different[-1])} in another"
            return msgspec.structs.replace(line, detail=detail, mend=REPEAT), None
        found[role] = different[0]
    if any({_hooked(run) for run in ended[role]} != {_hooked(ended[BASELINE][0])} for role in ended):
        mend = "name two stacks with torch 2.14 or newer"
        return msgspec.structs.replace(line, detail="the stacks were not counted alike", mend=mend), None
    old, new = found[BASELINE], found[CANDIDATE]
    if old == new and not any(sum(numbers[:OPERATIONS]) for numbers in old):
        detail = "no operation of a process group was seen on any rank of either stack"
        return msgspec.structs.replace(line, detail=detail, mend="name a script that trains with several ranks"), None
    note = _classes(ended) + (
        "" if placement == "auto" else "; what C++ starts by itself is not counted, for want of hooks before torch 2.14"
    )
    if old == new:
        detail = f"{_text(old)}, in each of {len(ended[BASELINE]) + len(ended[CANDIDATE])} runs{note}"
        return msgspec.structs.replace(line, verdict=Verdict.PASS, detail=detail), None
    detail = f"baseline {_text(old)}; candidate {_text(new)}{note}"
    mend = "find out why, for the numbers of this cell compare unlike work; or declare it if it is meant"
    difference = Difference(line=claim.id, what="operations of your script", baseline=_text(old), candidate=_text(new))
    return msgspec.structs.replace(line, verdict=Verdict.FAIL, detail=detail, mend=mend, declarable=True), difference


def with_note(line: Line, same_work: Line) -> Line:
    """A number says so when it may be of unlike work."""
    if same_work.verdict is Verdict.PASS or not line.baseline:
        return line
    return msgspec.structs.replace(line, detail=f"{line.detail}; not proven to be of the same work: {same_work.id}")


def _line(claim: Claim, evidence: tuple[str, ...]) -> Line:
    return Line(
        id=claim.id,
        item=claim.item,
        topology=claim.topology,
        verdict=Verdict.UNKNOWN,
        claim=claim.claim,
        evidence=evidence,
    )


def _why(run: CanaryRun) -> str:
    """Of a failed run: its end rather than what its ranks left."""
    if run.exit_code is None:
        return f"not over in {run.wall_s:.0f} s"
    return f"exit code {run.exit_code}: {run.last_line or 'no output'}"


def _counts(run: CanaryRun) -> Counts | None:
    """None when a rank left none, or one that is not of its whole run."""
    records = run.of_attempt()
    if run.missing() or any("collectives" not in record.measures or record.doing for record in records.values()):
        return None
    return tuple(tuple(int(records[rank].measures.get(word, 0)) for word, _ in WORDS) for rank in sorted(records))


def _uncounted(runs: Sequence[CanaryRun]) -> str:
    """Why one of them has no whole count."""
    for record in (record for run in runs for record in run.ranks):
        if "count" in record.failed:
            return f"rank {record.rank} could not be counted: {record.failed['count']}"
        if record.doing:
            return f"rank {record.rank} ended by a way that Python does not see (exec, _exit): its count is cut short"
    return "a rank left no count of its operations"


def _hooked(run: CanaryRun) -> bool:
    """Whether the operations of all its ranks were counted in torch's dispatcher."""
    return all(record.measures.get("hooked", 0.0) > 0 for record in run.ranks)


def _classes(ended: dict[str, list[CanaryRun]]) -> str:
    names = {role: _classes_of(runs) for role, runs in ended.items()}
    if names[BASELINE] == names[CANDIDATE]:
        return f"; {names[BASELINE]} on both"
    return f"; {names[BASELINE]} on the baseline, {names[CANDIDATE]} on the candidate"


def _classes_of(runs: Sequence[CanaryRun]) -> str:
    found = {record.facts.backend_class for run in runs for record in run.ranks if record.facts.backend_class}
    return ", ".join(sorted(found)) or "no process group"


def _text(counts: Counts) -> str:
    """ "30 collectives and 10 optimizer steps a rank", or rank by rank where they differ."""
    if len(set(counts)) == 1:
        return f"{_numbers(counts[0])} a rank"
    told = [f"rank {rank} {_numbers(numbers)}" for rank, numbers in enumerate(counts)]
    return "; ".join(told[:MOST_RANKS]) + (f" and {len(told) - MOST_RANKS} more" if len(told) > MOST_RANKS else "")


def _numbers(numbers: tuple[int, ...]) -> str:
    """Collectives always, the others where there are any."""
    first, *others = [f"{number} {name}" for number, (_, name) in zip(numbers, WORDS, strict=True)]
    told = [first, *(text for text, number in zip(others, numbers[1:], strict=True) if number)]
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"


def _mega(amount_bytes: float | None) -> float | None:
    return None if amount_bytes is None else amount_bytes / MEGA
