"""From the runs of both sides to lines and differences. Pure."""

from collections.abc import Sequence
from statistics import median

import msgspec

from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.canary_runs import PairRuns
from hangdrill.certify.compare_samples import MOST_TIMES, Comparison, Limit, Outcome, Rule, compare
from hangdrill.certify.measures import Measured
from hangdrill.model.certify_plan import Measure
from hangdrill.model.receipt import Difference, Line
from hangdrill.model.verdict import Verdict

__all__ = ["Judged", "Samples", "judge_measure", "samples_of"]

VERDICTS = {
    Outcome.WORSE: Verdict.FAIL,
    Outcome.BETTER: Verdict.PASS,
    Outcome.NOT_WORSE: Verdict.PASS,
    Outcome.UNDECIDED: Verdict.UNKNOWN,
}


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """Of one measure: the samples of the pairs in which both sides have one, and how many runs of each had none."""

    baseline: tuple[float, ...] = ()
    candidate: tuple[float, ...] = ()
    baseline_lost: int = 0
    candidate_lost: int = 0
    why: str = ""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A line, the difference that it shows if it shows one, and the samples as the cell keeps them."""

    line: Line
    difference: Difference | None = None
    samples: Samples


def samples_of(measured: Measured, runs: PairRuns) -> Samples:
    """Take the measure of every run."""
    old, new = ([measured.sample(run) for run in side] for side in (runs.baseline, runs.candidate))
    both = [
        (first, second) for first, second in zip(old, new, strict=False) if first is not None and second is not None
    ]
    lost = [run for run, sample in zip((*runs.candidate, *runs.baseline), (*new, *old), strict=True) if sample is None]
    return Samples(
        baseline=tuple(first for first, _ in both),
        candidate=tuple(second for _, second in both),
        baseline_lost=old.count(None),
        candidate_lost=new.count(None),
        why=_why(lost, measured.parts) or runs.gave_up,
    )


def judge_measure(
    measured: Measured,
    runs: PairRuns,
    *,
    cell: str,
    limit: Limit,
    rule: Rule,
    evidence: tuple[str, ...] = (),
    names: tuple[str, str] = ("baseline", "candidate"),
    variants: bool = False,
) -> Judged:
    """One line. A measure that the candidate lost, and the baseline did not, is a FAIL; lost by both it is UNKNOWN.

    names: of the two sides. variants: both are of one stack, so the line is an answer, and no difference needs leave.
    """
    samples = samples_of(measured, runs)
    line = Line(
        id=f"{cell}/{measured.name}",
        item=measured.item,
        topology=measured.topology.value,
        verdict=Verdict.UNKNOWN,
        claim=measured.claim,
        unit=measured.unit,
        baseline=samples.baseline,
        candidate=samples.candidate,
        rule=rule.sentence(limit, measured.unit),
        evidence=evidence,
    )
    if samples.candidate_lost or samples.baseline_lost:
        return Judged(line=_lost(line, samples, names), samples=samples)
    found = compare(samples.baseline, samples.candidate, limit=limit, rule=rule)
    line = _with(line, found, names)
    if found.outcome is Outcome.UNDECIDED:
        line = msgspec.structs.replace(line, mend=_mend_undecided(found, measured.measure, on_gpus=_on_gpus(runs)))
    difference = None
    if found.outcome in (Outcome.WORSE, Outcome.BETTER):
        difference = Difference(
            line=line.id,
            what=f"{measured.name.rsplit('/', maxsplit=1)[-1]} ({measured.topology.value})",
            baseline=_amount(_middle(samples.baseline), measured.unit),
            candidate=_amount(_middle(samples.candidate), measured.unit),
            declared=variants or found.outcome is Outcome.BETTER,
        )
        line = msgspec.structs.replace(line, declarable=line.verdict is Verdict.FAIL)
        if variants:
            line = msgspec.structs.replace(line, verdict=Verdict.PASS, mend="", declarable=False)
    return Judged(line=line, difference=difference, samples=samples)


def _lost(line: Line, samples: Samples, names: tuple[str, str]) -> Line:
    """Some runs have no sample."""
    only_new = samples.candidate_lost > 0 and samples.baseline_lost == 0
    counts = f"{names[0]} {samples.baseline_lost}, {names[1]} {samples.candidate_lost}"
    return msgspec.structs.replace(
        line,
        verdict=Verdict.FAIL if only_new else Verdict.UNKNOWN,
        detail=f"runs without this measure: {counts}; {samples.why or 'no reason was recorded'}",
        mend="see the logs beside runs.json, mend that, and measure again",
    )


def _with(line: Line, found: Comparison, names: tuple[str, str]) -> Line:
    unit, (old, new) = line.unit, (_middle(line.baseline), _middle(line.candidate))
    detail = f"{names[0]} {_amount(old, unit)}, {names[1]} {_amount(new, unit)}, {found.pairs} pairs"
    if found.ratio is not None and found.interval is not None:
        detail += f"; ratio {found.ratio:.3g} [{found.interval[0]:.3g}, {found.interval[1]:.3g}]"
    elif found.change is not None and found.change_interval is not None:
        low, high = found.change_interval
        detail += f"; {found.change:+.3g} {unit} [{low:+.3g}, {high:+.3g}]"
    if found.outcome is Outcome.UNDECIDED:
        detail += f"; {found.why}"
    worse = found.outcome is Outcome.WORSE
    mend = "find the cause, or declare the difference in the plan if it is accepted" if worse else ""
    return msgspec.structs.replace(
        line, verdict=VERDICTS[found.outcome], detail=detail, mend=mend, ratio=found.ratio, interval=found.interval
    )


def _mend_undecided(found: Comparison, measure: Measure, *, on_gpus: bool) -> str:
    """More pairs are only advised where somebody would run so many."""
    wider = f"set a wider limit in the plan (thresholds.{measure.value})"
    if found.pairs_wanted is not None:
        return f"run about {found.pairs_wanted} pairs (workload.pairs), on a quieter machine, or {wider}"
    ways = ["measure on a quieter machine", wider, *(() if on_gpus else ("leave this measure to a host with GPUs",))]
    return f"more pairs hardly help (over {MOST_TIMES} times as many are wanted): {', or '.join(ways)}"


def _on_gpus(runs: PairRuns) -> bool:
    """Whether any rank measured on one."""
    facts = (record.facts for run in (*runs.baseline, *runs.candidate) for record in run.ranks)
    return any(one.device.startswith("cuda") or "NCCL" in one.backend_class for one in facts)


def _why(lost: Sequence[CanaryRun], parts: Sequence[str]) -> str:
    return next((why for run in lost if (why := run.trouble(parts))), "")


def _middle(samples: Sequence[float]) -> float:
    return median(samples) if samples else 0.0


def _amount(number: float, unit: str) -> str:
    return f"{number:.4g} {unit}"
