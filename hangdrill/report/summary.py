"""Several results as one value, the contract `hangdrill.summary/1`, and its bytes for summary.json."""

from collections.abc import Sequence

import msgspec

from hangdrill.model.run import DrillResult
from hangdrill.model.summary import Summary
from hangdrill.model.verdict import Verdict, merge

__all__ = ["summary_json", "summary_of"]


def summary_of(results: Sequence[DrillResult], *, out_dir: str) -> Summary:
    """The results in their order; the verdict is FAIL over UNKNOWN over PASS, and UNKNOWN of nothing at all."""
    verdicts = [result.verdict for result in results]
    return Summary(
        verdict=merge(verdicts),
        passed=verdicts.count(Verdict.PASS),
        failed=verdicts.count(Verdict.FAIL),
        unknown=verdicts.count(Verdict.UNKNOWN),
        out_dir=out_dir,
        results=tuple(results),
    )


def summary_json(summary: Summary) -> bytes:
    """One JSON object over several lines, with a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
