"""What the canary cells' results have in common: samples by measure and side, and the files of evidence."""

from hangdrill.certify.canary_lines import Judged
from hangdrill.certify.canary_runs import PairRuns
from hangdrill.certify.cells import CellContext
from hangdrill.certify.measures import Measured
from hangdrill.certify.stacks import BASELINE, CANDIDATE
from hangdrill.model.receipt import EvidenceFile

__all__ = ["evidence_of", "samples_by_name"]


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
            log = context.cell_dir / f"{pair:02d}-{role}" / "job.log"
            if run.trouble() and log.is_file():
                paths.append(log)
    return context.evidence(*paths)
