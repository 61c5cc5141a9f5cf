"""What the canary cells' results have in common: the judged lines, samples by measure and side, and the evidence."""

from collections.abc import Iterable

from hangdrill.certify.canary_lines import Judged, judge_measure
from hangdrill.certify.canary_runs import PairRuns
from hangdrill.certify.cells import CellContext, Claim, unknown_lines
from hangdrill.certify.compare_samples import Rule
from hangdrill.certify.measures import Measured, is_wanted, limit_of
from hangdrill.certify.stacks import BASELINE, CANDIDATE
from hangdrill.model.certify_plan import CertifyPlan
from hangdrill.model.receipt import EvidenceFile, Line

__all__ = ["chosen_of", "evidence_of", "judge_all", "left_out_lines", "samples_by_name"]


def chosen_of(measured: Iterable[Measured], plan: CertifyPlan) -> tuple[tuple[Measured, ...], tuple[Measured, ...]]:
    """(what the plan has compared, what it leaves out)."""
    chosen: dict[bool, list[Measured]] = {True: [], False: []}
    for one in measured:
        chosen[is_wanted(one, plan)].append(one)
    return tuple(chosen[True]), tuple(chosen[False])


def left_out_lines(claims: Iterable[Claim], left_out: tuple[Measured, ...]) -> tuple[Line, ...]:
    """What the plan leaves out stays on the page."""
    names = {one.name for one in left_out}
    told = tuple(claim for claim in claims if any(claim.id.endswith(f"/{name}") for name in names))
    return unknown_lines(
        told, "not measured: measures, in the plan, leaves it out", "name it there, or leave measures out"
    )


def judge_all(
    measured: Iterable[Measured],
    runs: PairRuns,
    plan: CertifyPlan,
    *,
    cell: str,
    evidence: tuple[str, ...],
    names: tuple[str, str] = (BASELINE, CANDIDATE),
    variants: bool = False,
) -> list[Judged]:
    """Every measure of a cell from the same runs, by the plan's limits. names, variants: as for `judge_measure`."""
    return [
        judge_measure(
            one,
            runs,
            cell=cell,
            limit=limit_of(one.measure, plan.thresholds),
            rule=Rule(),
            evidence=evidence,
            names=names,
            variants=variants,
        )
        for one in measured
    ]


def samples_by_name(measured: tuple[Measured, ...], judged: list[Judged]) -> dict[str, dict[str, tuple[float, ...]]]:
    return {
        one.name: {BASELINE: each.samples.baseline, CANDIDATE: each.samples.candidate}
        for one, each in zip(measured, judged, strict=True)
    }


def evidence_of(context: CellContext, runs: PairRuns) -> tuple[EvidenceFile, ...]:
    """runs.json, and the log of every run in which something went wrong."""
    paths = [context.cell_dir / "runs.json"]
    for role in (BASELINE, CANDIDATE):
        for pair, run in enumerate(getattr(runs, role), start=1):
            if run.trouble():
                paths += sorted((context.cell_dir / f"{pair:02d}-{role}").glob("job*.log"))
    return context.evidence(*paths)
