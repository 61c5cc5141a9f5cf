"""Which backend class ran on every rank of a canary's jobs: one on each side, or something is wrong. Pure."""

import msgspec

from hangdrill.certify.canary_records import CanaryRun
from hangdrill.certify.canary_runs import PairRuns
from hangdrill.certify.stacks import BASELINE, CANDIDATE
from hangdrill.model.certify_plan import Topology
from hangdrill.model.receipt import Difference, Item, Line
from hangdrill.model.verdict import Verdict

__all__ = ["BACKEND_CLAIM", "backend_line"]

BACKEND_CLAIM = "every rank of a stack ran the same backend class, in every run"


def backend_line(
    name: str, runs: PairRuns, evidence: tuple[str, ...], topology: Topology = Topology.SINGLE_NODE
) -> tuple[Line, Difference | None]:
    """By the class of the group, which alone proves what ran."""
    classes = {role: _classes(getattr(runs, role)) for role in (BASELINE, CANDIDATE)}
    line = Line(
        id=name,
        item=Item.BACKEND,
        topology=topology.value,
        verdict=Verdict.PASS,
        claim=BACKEND_CLAIM,
        detail="; ".join(f"{role} {', '.join(found) or 'none seen'}" for role, found in classes.items()),
        evidence=evidence,
    )
    if any(len(found) > 1 for found in classes.values()):
        mend = "find out which ranks have other variables: see creators and switch in runs.json"
        return msgspec.structs.replace(line, verdict=Verdict.FAIL, mend=mend), None
    unseen = next((why for role in classes for run in getattr(runs, role) if (why := _unseen(role, run))), "")
    if unseen or not all(classes.values()):
        mend, detail = "see the logs beside runs.json", f"{line.detail}{'; ' if unseen else ''}{unseen}"
        return msgspec.structs.replace(line, verdict=Verdict.UNKNOWN, detail=detail, mend=mend), None
    (old,), (new,) = classes[BASELINE], classes[CANDIDATE]
    if old == new:
        return line, None
    return line, Difference(line=name, what="backend class", baseline=old, candidate=new)


def _unseen(role: str, run: CanaryRun) -> str:
    """Of a run in which not every rank said its class; empty when each did."""
    first = run.of_attempt()
    silent = [rank for rank in range(run.world_size) if rank not in first or not first[rank].facts.backend_class]
    return f"{role}, in one run not of rank {', '.join(map(str, silent))}: {run.trouble()}" if silent else ""


def _classes(runs: tuple[CanaryRun, ...]) -> tuple[str, ...]:
    found = {record.facts.backend_class for run in runs for record in run.ranks if record.facts.backend_class}
    return tuple(sorted(found))
