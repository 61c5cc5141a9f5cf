"""Several drills of one call together: the contract `hangdrill.summary/1`, written as `summary.json`."""

from typing import Literal

import msgspec

from hangdrill.model.run import DrillResult
from hangdrill.model.verdict import Verdict

__all__ = ["Summary"]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """All results, in the order asked for. verdict: FAIL over UNKNOWN over PASS. The counts are of drills."""

    schema: Literal["hangdrill.summary/1"] = "hangdrill.summary/1"
    verdict: Verdict
    passed: int
    failed: int
    unknown: int
    out_dir: str
    results: tuple[DrillResult, ...]
