"""The rule by which two stacks are called different.

Both stacks are measured in pairs, one run of each, in changing order (AB BA AB ...), so that a slow drift of the
machine meets both alike. The rule looks at what happens within the pairs and at nothing else:

1. The estimate is the median of the pairs' ratios candidate/baseline, and that of their differences.
2. Its interval is exact, by order statistics, at 99 %: with 8 pairs it goes from the smallest ratio to the largest,
   with 12 one stray pair on each side is outside, with 15 two, with 20 three.
3. Worse: the estimate is beyond every limit that is set, and the pairs are not so by chance: the interval excludes "no
   difference" and the pairs agree (the estimate is at least 3 times their median deviation from it), or the wider
   interval at 99.9 % excludes it as well. Better: the same in the other direction.
4. Not worse: the interval ends below a limit that is set. Else undecided: the runs differ too much among themselves for
   this many pairs, and the result says about how many would do, up to four times as many.
5. Fewer than 8 pairs are always undecided: 8 of 8 point one way by chance once in 128. A certification has twenty lines
   and more, which is why that alone is not enough where pairs do not agree.

A limit is a ratio (0.10: ten percent), an absolute amount in the unit of the samples, or both; with both, a difference
must be beyond both. A time has a ratio, and a floor below which nobody cares; memory has an absolute limit alone, for
200 MB are 200 MB also beside 60 GB.

What it can do was simulated, on noise with heavy tails and drift (docs/different.md): equal stacks are called worse in
at most two of 1000 lines, however large the noise. Of 100 slowdowns of 20 %, against a limit of 10 %, 16 pairs find 95
where runs of one stack differ by 2 %, 24 find 98 where they differ by 5 %, 36 find 89 where they differ by 10 %, and
60 find 49 where they differ by 20 %. Where more are wanted, longer runs are cheaper than more pairs.
It is blind to what is rarer than the middle: a stack that is slow once in five runs is not worse by this rule.
"""

import math
from collections.abc import Sequence
from enum import Enum

import msgspec

from hangdrill.certify.middle import Middle, deviation_of, middle_of, pairs_for

__all__ = ["Comparison", "Limit", "Outcome", "Rule", "compare"]

DEFAULT_RATIO = 0.10
MOST_TIMES = 4
"""Nobody runs more than that many times the pairs: something else must be done."""
LARGEST_LOG = 700.0


class Outcome(Enum):
    """What a comparison came to, seen from the candidate."""

    WORSE = "worse"
    BETTER = "better"
    NOT_WORSE = "not-worse"
    UNDECIDED = "undecided"


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a difference counts. ratio: 0.10 is ten percent; absolute: in the unit of the samples."""

    ratio: float | None = DEFAULT_RATIO
    absolute: float | None = None
    higher_is_better: bool = False
    """Of a rate; of times and sizes lower is better."""

    @property
    def log_ratio(self) -> float | None:
        """The ratio on the scale on which up and down are alike."""
        return math.log1p(self.ratio) if self.ratio is not None else None


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """How sure to be."""

    confidence: float = 0.99
    min_pairs: int = 8
    agreement: float = 3.0
    """The estimate over the pairs' median deviation from it."""
    strict_confidence: float = 0.999
    """Where pairs do not agree: a certification of twenty lines then errs once in a hundred, whatever the noise."""

    @property
    def pairs(self) -> int:
        """The fewest pairs that are judged."""
        return max(self.min_pairs, pairs_for(self.confidence))

    def sentence(self, limit: Limit, unit: str = "") -> str:
        """The rule in one sentence, for the receipt. unit: of the samples."""
        amounts = [f"{100 * limit.ratio:.3g} %"] if limit.ratio is not None else []
        amounts += [f"{limit.absolute:g} {unit}".rstrip()] if limit.absolute is not None else []
        side = "lower" if limit.higher_is_better else "higher"
        sure, strict = (f"{100 * confidence:.4g} %" for confidence in (self.confidence, self.strict_confidence))
        return (
            f"worse: the median of at least {self.pairs} alternating pairs is more than {' and '.join(amounts)} "
            f"{side}, and its exact {sure} interval excludes no difference ({strict} where the median is less than "
            f"{self.agreement:g} times the pairs' deviation)"
        )


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """ratio and interval: candidate/baseline, None where they are not finite. change and change_interval: candidate -
    baseline, in the samples' unit. pairs_wanted: of an undecided one, about how many pairs would decide it; None
    when that is more than MOST_TIMES as many."""

    outcome: Outcome
    pairs: int
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    change: float | None = None
    change_interval: tuple[float, float] | None = None
    pairs_wanted: int | None = None
    why: str = ""


def compare(baseline: Sequence[float], candidate: Sequence[float], *, limit: Limit, rule: Rule) -> Comparison:
    """Judge pairs: baseline[i] and candidate[i] were measured one right after the other.

    ValueError when there is no limit, the lengths differ, or a sample is negative or no number.
    """
    _check(baseline, candidate, limit)
    both, pairs = list(zip(baseline, candidate, strict=True)), len(baseline)
    ratios, changes = [_log_ratio(old, new) for old, new in both], [new - old for old, new in both]
    ratio, change = (middle_of(numbers, rule.confidence) for numbers in (ratios, changes))
    if pairs < rule.pairs or ratio is None or change is None:
        why = f"{pairs} of the {rule.pairs} pairs that a confidence of {rule.confidence:.4g} needs"
        return Comparison(outcome=Outcome.UNDECIDED, pairs=pairs, pairs_wanted=rule.pairs, why=why)
    sides = [
        _Side.of(middle, amount, numbers, rule, higher_is_better=limit.higher_is_better)
        for middle, amount, numbers in ((ratio, limit.log_ratio, ratios), (change, limit.absolute, changes))
        if amount is not None
    ]
    outcome = _decide(sides)
    undecided = outcome is Outcome.UNDECIDED
    wanted = max(pairs + 1.0, min(side.pairs_wanted(pairs) for side in sides))
    return Comparison(
        outcome=outcome,
        pairs=pairs,
        ratio=_finite(_exp(ratio.estimate)),
        interval=_finite_pair(_exp(ratio.low), _exp(ratio.high)),
        change=_finite(change.estimate),
        change_interval=(change.low, change.high),
        pairs_wanted=math.ceil(wanted) if undecided and math.isfinite(wanted) else None,
        why=f"the runs differ too much among themselves for {pairs} pairs" if undecided else "",
    )


class _Side(msgspec.Struct, frozen=True):
    """An estimate with its interval, against one limit; positive is worse. real: it is no chance."""

    estimate: float
    low: float
    high: float
    limit: float
    real: bool

    @classmethod
    def of(
        cls, middle: Middle, limit: float, numbers: Sequence[float], rule: Rule, *, higher_is_better: bool
    ) -> "_Side":
        """Turned so that more is worse."""
        real = _is_real(middle, numbers, rule)
        if higher_is_better:
            return cls(-middle.estimate, -middle.high, -middle.low, limit, real)
        return cls(middle.estimate, middle.low, middle.high, limit, real)

    @property
    def worse(self) -> bool:
        return self.real and self.estimate > self.limit

    @property
    def better(self) -> bool:
        return self.real and self.estimate < -self.limit

    @property
    def not_worse(self) -> bool:
        return self.high <= self.limit

    def pairs_wanted(self, pairs: int) -> float:
        """An interval shrinks with the root of the pairs: until it clears the limit or, beyond the limit, zero. Endless
        beyond MOST_TIMES."""
        reach = self.estimate if self.estimate > self.limit else self.limit - self.estimate
        half = max(self.high - self.estimate, self.estimate - self.low)
        if reach <= 0 or not half <= reach * MOST_TIMES**0.5:
            return math.inf
        return pairs * (half / reach) ** 2


def _is_real(middle: Middle, numbers: Sequence[float], rule: Rule) -> bool:
    """Whether the numbers are not around zero by chance."""
    if middle.low <= 0 <= middle.high:
        return False
    if abs(middle.estimate) >= rule.agreement * deviation_of(numbers, middle.estimate):
        return True
    strict = middle_of(numbers, rule.strict_confidence)
    return strict is not None and not strict.low <= 0 <= strict.high


def _decide(sides: Sequence[_Side]) -> Outcome:
    """A difference must be beyond every limit; it is small when it stays below any of them."""
    if all(side.worse for side in sides):
        return Outcome.WORSE
    if all(side.better for side in sides):
        return Outcome.BETTER
    if any(side.not_worse for side in sides):
        return Outcome.NOT_WORSE
    return Outcome.UNDECIDED


def _log_ratio(old: float, new: float) -> float:
    """From nothing to something is an endless ratio; nothing beside nothing is none."""
    if old == new:
        return 0.0
    return math.log(new / old) if old and new else math.copysign(math.inf, new - old)


def _exp(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < LARGEST_LOG else math.inf


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _finite_pair(low: float, high: float) -> tuple[float, float] | None:
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _check(baseline: Sequence[float], candidate: Sequence[float], limit: Limit) -> None:
    if limit.ratio is None and limit.absolute is None:
        raise ValueError("a limit needs a ratio, an absolute amount, or both")
    if len(baseline) != len(candidate):
        raise ValueError(f"{len(baseline)} samples of the baseline and {len(candidate)} of the candidate are no pairs")
    for sample in (*baseline, *candidate):
        if not math.isfinite(sample) or sample < 0:
            raise ValueError(f"a sample must be a number from 0 on, got {sample}")
