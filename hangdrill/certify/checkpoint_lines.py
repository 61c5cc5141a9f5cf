"""What the pair table and the older checkpoint mean for the upgrade: the lines of the checklist. Pure.

The rules: a line passes when every row that it speaks of is bit-equal; it fails when one is not, and cannot tell when
one is unknown and none is worse. A one-way candidate fails the line `way-back`, unless the plan declares it; declared
or not, there must be an older checkpoint to go back to. What the drill's own checkpoints prove is said of them alone:
as long as the plan names none of the real job, the line `last-known-good` is no PASS.
"""

from collections.abc import Sequence

import msgspec

from hangdrill.certify.declared import is_declared
from hangdrill.model.receipt import CheckpointOutcome, CheckpointPair, Difference, Item, Line, Unresolved
from hangdrill.model.verdict import Verdict, merge

__all__ = ["CLAIMS", "WAY_BACK", "KnownGood", "checkpoint_lines", "one_way_difference", "unresolved_of"]

WAY_BACK = "checkpoint/way-back"
KNOWN_GOOD = "checkpoint/last-known-good"
CLAIMS: dict[str, str] = {
    "checkpoint/own": "Each stack restores what it saved: parameters, optimizer and step are bit-equal",
    "checkpoint/forward": "The candidate restores what the baseline saved, bit-equal",
    WAY_BACK: "The baseline restores what the candidate saved, bit-equal, so that the upgrade can be undone",
    KNOWN_GOOD: "The plan names an older checkpoint of the real job, and the baseline reads it after the candidate has",
    "checkpoint/duplicate": "Of the candidate's first checkpoint there is a copy with equal hashes that restores",
}
NAME_IT = "set checkpoint.known_good to the newest checkpoint of the baseline"
RANKED = {CheckpointOutcome.EQUAL: Verdict.PASS, CheckpointOutcome.UNKNOWN: Verdict.UNKNOWN}
"""Every other outcome is a FAIL."""


class KnownGood(msgspec.Struct, frozen=True, kw_only=True):
    """The older checkpoints to go back to. own: what the baseline saved in this drill, and its step.

    given: the plan's `known_good`; verdict and detail are of reading it on both stacks.
    """

    own: str
    step: str = ""
    given: str = ""
    verdict: Verdict = Verdict.PASS
    detail: str = ""
    evidence: tuple[str, ...] = ()


def checkpoint_lines(
    pairs: Sequence[CheckpointPair], known_good: KnownGood, *, copies: Sequence[str], declared: Sequence[str]
) -> tuple[Line, ...]:
    """One line a claim. copies: the candidate's duplicates, as the receipt names them."""
    older = _known_good(pairs, known_good)
    proven = merge(
        (_line("checkpoint/own", _rows(pairs, "baseline", "baseline")).verdict, *_verdict_of_given(known_good))
    )
    return (
        _line("checkpoint/own", [*_rows(pairs, "baseline", "baseline"), *_rows(pairs, "candidate", "candidate")]),
        _line("checkpoint/forward", _rows(pairs, "baseline", "candidate")),
        _way_back(pairs, proven, known_good, declared),
        older,
        _duplicate(pairs, copies),
    )


def one_way_difference(
    pairs: Sequence[CheckpointPair], *, torch: tuple[str, str], declared: Sequence[str]
) -> tuple[Difference, ...]:
    """The difference that an upgrade makes; none when nothing is one-way. torch: of the baseline and the candidate."""
    ways = [row for row in _rows(pairs, "candidate", "baseline") if row.one_way]
    if not ways:
        return ()
    back, forth = f"torch {torch[0]}", f"torch {torch[1]}"
    return (
        Difference(
            line=WAY_BACK,
            what=f"checkpoints are one-way: saved by the candidate ({forth}), not restored by the baseline ({back})",
            baseline="restores its own, and so does the candidate",
            candidate=f"{_variants(ways)}: {ways[0].outcome.value} by the baseline: {ways[0].detail}",
            declared=is_declared(declared, WAY_BACK),
        ),
    )


def unresolved_of(known_good: KnownGood, pairs: Sequence[CheckpointPair]) -> tuple[Unresolved, ...]:
    """What somebody must decide before the upgrade."""
    if known_good.given or not any(row.one_way for row in pairs):
        return ()
    return (
        Unresolved(
            line=KNOWN_GOOD,
            what="checkpoints are one-way, and the plan names no older checkpoint of the real job",
            next_step=f"{NAME_IT}, and keep it",
        ),
    )


def _line(name: str, rows: Sequence[CheckpointPair], mend: str = "") -> Line:
    verdict = merge(RANKED.get(row.outcome, Verdict.FAIL) for row in rows)
    return Line(
        id=name,
        item=Item.CHECKPOINT,
        verdict=verdict,
        claim=CLAIMS[name],
        detail=_detail(rows),
        mend="" if verdict is Verdict.PASS else mend or _mend(rows),
        evidence=tuple(dict.fromkeys(path for row in rows for path in row.evidence)),
    )


def _way_back(pairs: Sequence[CheckpointPair], proven: Verdict, known: KnownGood, declared: Sequence[str]) -> Line:
    """proven: whether there is a checkpoint to go back to, the plan's own or only the drill's."""
    rows = _rows(pairs, "candidate", "baseline")
    ways = [row for row in rows if row.one_way]
    if not ways:
        return _line(WAY_BACK, rows)
    back_to = _back_to(known)
    line = _line(
        WAY_BACK,
        rows,
        mend=f'keep the baseline\'s last checkpoint, and accept that with declared = ["{WAY_BACK}"]',
    )
    text = f"one-way ({_variants(ways)}): {ways[0].detail}"
    if proven is not Verdict.PASS:
        return msgspec.structs.replace(line, verdict=Verdict.FAIL, detail=f"{text}; and no older checkpoint is proven")
    text = f"{text}; a rollback restarts from {back_to}"
    only_that = len(ways) == len([row for row in rows if row.outcome is not CheckpointOutcome.EQUAL])
    if only_that and is_declared(declared, WAY_BACK):
        return msgspec.structs.replace(line, verdict=Verdict.PASS, detail=f"{text}; the plan declares it", mend="")
    return msgspec.structs.replace(line, detail=text, declarable=only_that)


def _known_good(pairs: Sequence[CheckpointPair], known: KnownGood) -> Line:
    line = _line(KNOWN_GOOD, _rows(pairs, "baseline", "baseline"))
    parts = [f"{known.own}{', step ' + known.step if known.step else ''}: {line.detail}"]
    if known.given:
        parts.append(f"{known.given}: {known.detail}")
    verdict = merge((line.verdict, *_verdict_of_given(known)))
    mend = "" if verdict is Verdict.PASS else "name a checkpoint that the baseline restores before anything is upgraded"
    if not known.given:
        verdict, mend = merge((verdict, Verdict.UNKNOWN)), f"{NAME_IT}, and keep it"
        parts = [f"the plan names none of the real job; only of the drill's own is anything known: {parts[0]}"]
    return msgspec.structs.replace(
        line,
        verdict=verdict,
        detail="; ".join(parts),
        mend=mend,
        evidence=(*line.evidence, *known.evidence),
    )


def _verdict_of_given(known: KnownGood) -> tuple[Verdict, ...]:
    return (known.verdict,) if known.given else ()


def _duplicate(pairs: Sequence[CheckpointPair], copies: Sequence[str]) -> Line:
    rows = _rows(pairs, "candidate", "candidate")
    line = _line("checkpoint/duplicate", rows)
    if not copies:
        return msgspec.structs.replace(
            line, verdict=Verdict.UNKNOWN, detail="nothing was there to copy", mend=_mend(rows)
        )
    return msgspec.structs.replace(
        line, detail=f"{copies[0]}{f' and {len(copies) - 1} more' if copies[1:] else ''}: {line.detail}"
    )


def _rows(pairs: Sequence[CheckpointPair], saved_by: str, restored_by: str) -> list[CheckpointPair]:
    return [row for row in pairs if (row.saved_by, row.restored_by) == (saved_by, restored_by)]


def _detail(rows: Sequence[CheckpointPair]) -> str:
    bad = [row for row in rows if row.outcome is not CheckpointOutcome.EQUAL]
    if not rows:
        return "no checkpoint was tried"
    if not bad:
        return f"{_variants(rows)}: {rows[0].detail}"
    return "; ".join(
        f"{_variants([row])} of {row.saved_by} on {row.restored_by}: {row.outcome.value}: {row.detail}" for row in bad
    )


def _variants(rows: Sequence[CheckpointPair]) -> str:
    return ", ".join(
        dict.fromkeys(row.layout if row.layout == "script" else f"{row.layout} {row.mode}" for row in rows)
    )


def _mend(rows: Sequence[CheckpointPair]) -> str:
    outcomes = {row.outcome for row in rows}
    if outcomes & {CheckpointOutcome.DAMAGED, CheckpointOutcome.PARTIAL}:
        return "no version trouble: look at the disk or at the copy, and save again"
    if outcomes & {CheckpointOutcome.HUNG, CheckpointOutcome.CRASHED}:
        return "read the job's log; the evidence says where the ranks were"
    if CheckpointOutcome.UNKNOWN in outcomes or not outcomes:
        return "make the stack's job start (its log is in the evidence), and run again"
    return "do not upgrade before this is understood: read the error in the notes of the ranks"


def _back_to(known: KnownGood) -> str:
    return known.given or f"the baseline's last checkpoint, as the drill's own did: {known.own}{_step(known)}"


def _step(known: KnownGood) -> str:
    return f" (step {known.step})" if known.step else ""
