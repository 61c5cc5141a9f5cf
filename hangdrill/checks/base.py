"""What a check is, and how the answers of single ranks become the answer of a check.

A check is a name, a claim and a pure function of the recorded run. The function returns None where the claim does not
apply to the drill (it is then left out of the results, never counted as passed). No input or output here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from hangdrill.checks.words import ranks_text
from hangdrill.model.run import RecordedRun
from hangdrill.model.verdict import Verdict, merge

__all__ = ["Answer", "Check", "Finding", "Judge", "by_rank", "failed", "passed", "unknown"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a check's function returns: a CheckResult that does not know its name yet. ranks is keyed by global rank."""

    verdict: Verdict
    ranks: Mapping[int, Verdict] = msgspec.field(default_factory=dict)
    detail: str = ""
    mend: str = ""


Judge: TypeAlias = Callable[[RecordedRun], Answer | None]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One claim about a recorded run. claim is one sentence that is true when the check passes."""

    name: str
    claim: str
    judge: Judge


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part of an answer. A text on a passed rank is a remark."""

    verdict: Verdict
    text: str = ""
    mend: str = ""


def passed(text: str = "") -> Finding:
    """The claim holds for this rank."""
    return Finding(verdict=Verdict.PASS, text=text)


def failed(text: str, mend: str = "") -> Finding:
    """The claim is wrong for this rank, as text says."""
    return Finding(verdict=Verdict.FAIL, text=text, mend=mend)


def unknown(text: str, mend: str = "") -> Finding:
    """There is no evidence for this rank, for the reason in text."""
    return Finding(verdict=Verdict.UNKNOWN, text=text, mend=mend)


def by_rank(findings: Mapping[int, Finding], summary: str, mend: str = "") -> Answer:
    """Merge the ranks' findings. The detail has the failures, then what is not known; when all passed, the summary and
    the remarks. mend is given when something failed and no finding has its own."""
    verdict = merge(finding.verdict for finding in findings.values())
    failures = _sentences(findings, Verdict.FAIL)
    unknowns = _sentences(findings, Verdict.UNKNOWN)
    problems = [*failures, *unknowns]
    own_mends = _distinct(finding.mend for finding in findings.values() if finding.mend)
    return Answer(
        verdict=verdict,
        ranks={rank: finding.verdict for rank, finding in sorted(findings.items())},
        detail="; ".join(problems or [summary, *_sentences(findings, Verdict.PASS)]),
        mend="; ".join(own_mends) or (mend if failures else ""),
    )


def _sentences(findings: Mapping[int, Finding], verdict: Verdict) -> list[str]:
    """The texts of one verdict, ranks with the same text together, in the order of the first rank."""
    ranks_by_text: dict[str, list[int]] = {}
    for rank, finding in sorted(findings.items()):
        if finding.verdict is verdict and finding.text:
            ranks_by_text.setdefault(finding.text, []).append(rank)
    return [f"{ranks_text(ranks)}: {text}" for text, ranks in ranks_by_text.items()]


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
