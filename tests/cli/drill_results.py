"""Results of drills for the tests of cli and pytest plugin: as short as the model lets them be."""

from typing import Any

from hangdrill.model.diagnosis import Basis, Culprit, Diagnosis, HangKind, HangVerdict, RankRoll
from hangdrill.model.run import CheckResult, DrillResult, Environment, Timings
from hangdrill.model.verdict import Verdict

__all__ = ["drill_result"]


def drill_result(scenario: str = "quick/x", verdict: Verdict = Verdict.PASS, **changes: Any) -> DrillResult:
    """A drill that named rank 1, with one check of the verdict."""
    check = CheckResult(name="every-rank-dumped", verdict=verdict, detail="3 of 4 arrived", mend="look at rank 2")
    fields: dict[str, Any] = {
        "scenario": scenario,
        "verdict": verdict,
        "checks": (check,),
        "diagnosis": Diagnosis(
            verdict=HangVerdict.HANG,
            kind=HangKind.RANK_ABSENT,
            culprits=(Culprit(rank=1, basis=Basis.OBSERVED, why="it never came"),),
            ranks=RankRoll(expected=4, present=(0, 1, 2, 3)),
        ),
        "expected_culprits": (1,),
        "timings": Timings(launched_s=0.1, hang_s=3.0, total_s=9.5),
        "environment": Environment(torch="2.15.0"),
        "artifacts": (),
        "sentence": "rank 1 never entered all_reduce #4 of default_pg",
        **changes,
    }
    return DrillResult(**fields)
