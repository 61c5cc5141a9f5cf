"""From fingerprints and cell results to the receipt. Pure but for hashing the files that it names.

The verdict merges the lines' verdicts. Three lines are of the certification itself: that every cell ran, that what was
broken on purpose was found broken, and that every difference is declared. An item of the record without any line gets
an UNKNOWN one, so an empty certification is UNKNOWN and never PASS.
"""

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime, timedelta
from pathlib import Path

import msgspec

from hangdrill import __version__
from hangdrill.certify.cells import CellResult, evidence_file
from hangdrill.certify.declared import STACK_LINE, accepted, marked, stack_differences
from hangdrill.certify.own_lines import cells_line, controls_line, differences_line, named, not_measured
from hangdrill.certify.plan import LoadedPlan
from hangdrill.certify.rings import RingBefore
from hangdrill.certify.stack_lines import stack_lines
from hangdrill.certify.stacks import BASELINE, CANDIDATE, Stack
from hangdrill.model.certify_plan import CertifyPlan
from hangdrill.model.receipt import (
    CellRecord,
    Difference,
    EvidenceFile,
    Item,
    Line,
    Receipt,
    RollbackRecord,
    Unresolved,
)
from hangdrill.model.verdict import Verdict, merge

__all__ = ["Made", "cell_record", "receipt_of", "time_text"]

MOST_CHARACTERS = 160


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """How the certification was made: the plan, the stacks, who, and from when to when (UTC)."""

    loaded: LoadedPlan
    stacks: Mapping[str, Stack]
    who: str
    began: datetime
    ended: datetime
    ring_before: RingBefore = RingBefore()
    unchanged: tuple[Line, ...] = ()
    """Whether each stack was at the end what it was at the beginning."""


def receipt_of(made: Made, results: Sequence[CellResult], *, resumed: Set[str] = frozenset(), out_dir: Path) -> Receipt:
    """The receipt. out_dir: where the results lie, to be named with their hashes."""
    plan = made.loaded.plan
    baseline, candidate = made.stacks[BASELINE], made.stacks[CANDIDATE]
    differences = _differences(plan, baseline, candidate, results)
    controls = tuple(control for result in results for control in result.controls)
    lines = (
        *stack_lines(plan, baseline, candidate),
        *made.unchanged,
        *accepted((line for result in results for line in result.lines), differences, plan.declared),
        cells_line(results),
        controls_line(controls),
        differences_line(differences, baseline, candidate),
    )
    lines = _in_order((*lines, *not_measured(lines)))
    verdict = merge(line.verdict for line in lines)
    return Receipt(
        id=f"{time_text(made.ended)}-{secrets.token_hex(4)}",
        title=plan.title,
        verdict=verdict,
        sentence=_sentence(verdict, lines),
        plan=made.loaded.record,
        baseline=baseline.record(),
        candidate=candidate.record(),
        other_stacks=tuple(stack.record() for name, stack in made.stacks.items() if name not in (BASELINE, CANDIDATE)),
        who=made.who,
        host=candidate.fingerprint.host if candidate.fingerprint is not None else "",
        hangdrill=__version__,
        began_at=_oldest(made, results),
        made_at=time_text(made.ended),
        valid_until=time_text(_valid_until(plan, _oldest(made, results))),
        ring=plan.ring.name,
        previous_ring=made.ring_before.name,
        previous_receipt_sha256=made.ring_before.receipt_sha256,
        cells=tuple(cell_record(result, resumed) for result in results),
        lines=lines,
        differences=differences,
        checkpoint_pairs=tuple(pair for result in results for pair in result.checkpoint_pairs),
        rollback=_rollback(plan, results),
        controls=controls,
        work=tuple(work for result in results for work in result.work),
        unresolved=_unresolved(differences, results),
        artifacts=_artifacts(results, out_dir),
    )


def time_text(time: datetime) -> str:
    """RFC 3339, to the second, in UTC: "2026-11-29T23:40:00Z"."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _oldest(made: Made, results: Sequence[CellResult]) -> str:
    """When the oldest measurement began: with --resume long before the certification that takes it."""
    return min((time_text(made.began), *(result.began_at for result in results if result.began_at)))


def _valid_until(plan: CertifyPlan, oldest: str) -> datetime:
    """valid_days after the oldest measurement, or when the day begins on which the fallback expires: what comes first.
    Only NCCL has one."""
    began = datetime.fromisoformat(oldest.replace("Z", "+00:00"))
    until = began + timedelta(days=plan.valid_days)
    if not plan.rollback.expires or "nccl" not in plan.workload.backend:
        return until
    expires = date.fromisoformat(plan.rollback.expires)
    return min(until, datetime(expires.year, expires.month, expires.day, tzinfo=began.tzinfo))


def _differences(
    plan: CertifyPlan, baseline: Stack, candidate: Stack, results: Sequence[CellResult]
) -> tuple[Difference, ...]:
    of_stacks: tuple[Difference, ...] = ()
    if baseline.fingerprint is not None and candidate.fingerprint is not None and baseline.works and candidate.works:
        of_stacks = stack_differences(baseline.fingerprint, candidate.fingerprint)
    seen = tuple(difference for result in results for difference in result.differences)
    return marked((*of_stacks, *seen), plan.declared)


def _in_order(lines: Sequence[Line]) -> tuple[Line, ...]:
    """By item; within one, as they came."""
    order = list(Item)
    return tuple(sorted(lines, key=lambda line: order.index(line.item)))


def _sentence(verdict: Verdict, lines: Sequence[Line]) -> str:
    counts = Counter(line.verdict for line in lines)
    if verdict is Verdict.PASS:
        return f"all {len(lines)} lines pass"
    first = next(line for line in lines if line.verdict is verdict)
    parts = [f"{counts[one]} {one.value}" for one in (Verdict.FAIL, Verdict.UNKNOWN) if counts[one]]
    detail = first.detail if len(first.detail) <= MOST_CHARACTERS else f"{first.detail[:MOST_CHARACTERS]} ..."
    return f"of {len(lines)} lines {' and '.join(parts)}; the first: {first.claim}{detail and f': {detail}'}"


def cell_record(result: CellResult, resumed: Set[str] = frozenset()) -> CellRecord:
    """A cell as the receipt names it. resumed: the ids of those whose result is an earlier one."""
    return CellRecord(
        id=result.id,
        topology=result.topology,
        verdict=merge(line.verdict for line in result.lines) if result.ran else Verdict.UNKNOWN,
        ran=result.ran,
        wall_s=result.wall_s,
        resumed=result.id in resumed,
        began_at=result.began_at,
        why_not=result.why_not,
    )


def _rollback(plan: CertifyPlan, results: Sequence[CellResult]) -> RollbackRecord:
    """What a cell proved; without one, what the plan says, unproven."""
    for result in results:
        if result.rollback is not None:
            return result.rollback
    said = plan.rollback
    return RollbackRecord(
        owner=said.owner, where=said.where, verify=said.verify, expires=said.expires, detail="it was not tried"
    )


def _unresolved(differences: Sequence[Difference], results: Sequence[CellResult]) -> tuple[Unresolved, ...]:
    """The stacks' undeclared facts as one, since there may be hundreds; each difference that a cell found by itself."""
    undeclared = [one for one in differences if not one.declared]
    facts = [one.what for one in undeclared if one.line == STACK_LINE]
    found = [
        Unresolved(
            line=one.line,
            what=f"{one.what}: {one.baseline or 'none'} -> {one.candidate or 'none'}",
            next_step=f"find the cause, or declare {one.line}",
        )
        for one in undeclared
        if one.line != STACK_LINE
    ]
    if facts:
        what = f"{named(facts)}: the stacks differ there, and the plan does not say so"
        found.insert(0, Unresolved(line=STACK_LINE, what=what, next_step="make the stacks alike, or declare it"))
    return (*found, *(one for result in results for one in result.unresolved))


def _artifacts(results: Sequence[CellResult], out_dir: Path) -> tuple[EvidenceFile, ...]:
    """Every file of evidence, and the results of the cells that have run, by path."""
    found = {file.path: file for result in results for file in result.artifacts}
    for name in ("plan.toml", "stacks.json", *(f"cells/{result.id}.json" for result in results if result.ran)):
        if (out_dir / name).is_file():
            found[name] = evidence_file(out_dir / name, out_dir)
    return tuple(found[path] for path in sorted(found))
