"""The rule for "different": what it must never say, and what it must always find, on noise as machines make it."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdrill.certify.compare_samples import Comparison, Limit, Outcome, Rule, compare
from hangdrill.certify.middle import middle_of, pairs_for, strays_allowed

MEMORY = Limit(ratio=None, absolute=64.0)
SAMPLES = st.floats(min_value=1e-6, max_value=1e9, allow_nan=False)
PAIRS = st.lists(st.tuples(SAMPLES, SAMPLES), min_size=8, max_size=24)
RUNS = range(10)
"""A promise is kept in ten of ten."""


def judge(pairs, limit=None, rule=None) -> Comparison:
    return compare([old for old, _ in pairs], [new for _, new in pairs], limit=limit or Limit(), rule=rule or Rule())


def machine(seed: int, pairs: int, *, noise: float = 0.05, slower: float = 1.0):
    """Two stacks on a machine that drifts, whose runs differ, and of which one run in twenty is far off."""
    dice, level, samples = random.Random(seed), 1.0, ([], [])
    for pair in range(pairs):
        for stack in (0, 1) if pair % 2 == 0 else (1, 0):
            level *= 1.002 + 0.01 * dice.gauss(0, 1)
            tail = dice.uniform(1.5, 4) if dice.random() < 0.05 else 1.0
            samples[stack].append(level * tail * dice.lognormvariate(0, noise) * (slower if stack else 1.0))
    return samples


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.02, 0.05])
def test_the_same_stack_twice_is_never_called_worse_in_ten_certifications_of_thirty_lines(noise):
    found = [
        compare(*machine(1000 * run + line, 12, noise=noise), limit=Limit(), rule=Rule()).outcome
        for run in RUNS
        for line in range(30)
    ]
    assert Outcome.WORSE not in found
    assert Outcome.BETTER not in found


@pytest.mark.parametrize(("pairs", "noise"), [(16, 0.02), (24, 0.05), (60, 0.10)])
def test_a_planted_slowdown_of_a_fifth_is_found_in_ten_of_ten(pairs, noise):
    found = [compare(*machine(run, pairs, noise=noise, slower=1.2), limit=Limit(), rule=Rule()) for run in RUNS]
    assert [one.outcome for one in found] == [Outcome.WORSE] * 10
    assert all(1.1 < one.ratio < 1.3 for one in found)


@pytest.mark.parametrize(("pairs", "noise"), [(16, 0.02), (24, 0.05), (60, 0.10)])
def test_a_throughput_that_is_a_fifth_lower_is_found_in_ten_of_ten(pairs, noise):
    limit = Limit(higher_is_better=True)
    for run in RUNS:
        baseline, candidate = machine(run, pairs, noise=noise, slower=0.8)
        assert compare(baseline, candidate, limit=limit, rule=Rule()).outcome is Outcome.WORSE


def memory(seed: int, more: float, base: float):
    """Megabytes: most runs agree to the byte, some hold a few more."""
    dice = random.Random(seed)

    def taken() -> float:
        return base + (dice.choice([2.0, 20.0]) if dice.random() < 0.2 else 0.0)

    return [taken() for _ in range(8)], [taken() + more for _ in range(8)]


@pytest.mark.parametrize("base", [0.0, 460.0, 60_000.0])
def test_two_hundred_megabytes_more_are_found_in_ten_of_ten_however_large_the_job(base):
    for run in RUNS:
        found = compare(*memory(run, 200.0, base), limit=MEMORY, rule=Rule())
        assert found.outcome is Outcome.WORSE
        assert 175 < found.change < 225


@pytest.mark.parametrize("base", [0.0, 460.0, 60_000.0])
def test_the_same_memory_is_never_called_worse(base):
    assert {compare(*memory(run, 0.0, base), limit=MEMORY, rule=Rule()).outcome for run in RUNS} == {Outcome.NOT_WORSE}


def test_noise_that_hides_the_limit_is_undecided():
    found = compare(*machine(1, 12, noise=0.5), limit=Limit(), rule=Rule())
    assert found.outcome is Outcome.UNDECIDED
    assert found.pairs_wanted is None  # more than anybody would run
    assert "differ too much" in found.why


@pytest.mark.parametrize(
    ("spread", "wanted"), [(0.1, 9), (0.15, 20), (0.19, 32), (0.192, None), (0.3, None), (3.0, None)]
)
def test_four_times_the_pairs_are_said_and_no_more(spread, wanted):
    """The interval is twice the spread around no difference, and the limit of ten percent is 0.0953 away."""
    found = judge([(1.0, math.exp(spread)), (1.0, math.exp(-spread))] * 4)
    assert (found.outcome, found.pairs_wanted) == (Outcome.UNDECIDED, wanted)


@pytest.mark.parametrize("pairs", range(8))
def test_fewer_than_eight_pairs_decide_nothing_even_of_a_gross_difference(pairs):
    found = judge([(1.0, 100.0)] * pairs)
    assert found.outcome is Outcome.UNDECIDED
    assert found.pairs_wanted == 8


def test_with_both_limits_a_difference_must_be_beyond_both():
    both = Limit(ratio=0.10, absolute=0.5)
    assert judge([(0.01, 0.02)] * 8, both).outcome is Outcome.NOT_WORSE  # twice as much, of nothing
    assert judge([(100.0, 101.0)] * 8, both).outcome is Outcome.NOT_WORSE
    assert judge([(1.0, 2.0)] * 8, both).outcome is Outcome.WORSE


def test_from_nothing_to_something_is_worse_and_from_something_to_nothing_is_better():
    assert judge([(0.0, 460.0)] * 8).outcome is Outcome.WORSE
    assert judge([(460.0, 0.0)] * 8).outcome is Outcome.BETTER
    assert judge([(0.0, 0.0)] * 8).outcome is Outcome.NOT_WORSE
    assert judge([(0.0, 460.0)] * 8, MEMORY).change == 460.0


def test_one_stray_pair_of_twelve_changes_nothing_and_two_do():
    good, stray = [(1.0, 1.2)] * 10, [(10.0, 1.2)]
    assert judge([*good, (1.0, 1.2), *stray]).outcome is Outcome.WORSE
    assert judge([*good, *stray, *stray]).outcome is Outcome.UNDECIDED


@given(PAIRS)
def test_swapping_the_stacks_turns_the_answer_around(pairs):
    there, back = judge(pairs), judge([(new, old) for old, new in pairs])
    assert there.outcome is not Outcome.WORSE or back.outcome is Outcome.BETTER
    assert there.outcome is not Outcome.BETTER or back.outcome is Outcome.WORSE
    assert there.ratio == pytest.approx(1 / back.ratio, rel=1e-6)


@given(PAIRS, st.floats(min_value=1e-3, max_value=1e3))
def test_the_unit_of_the_samples_does_not_matter_to_a_ratio(pairs, unit):
    there, scaled = judge(pairs), judge([(old * unit, new * unit) for old, new in pairs])
    assert there.ratio == pytest.approx(scaled.ratio, rel=1e-6)


@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_matter(pairs, dice):
    mixed = dice.sample(pairs, len(pairs))
    assert judge(pairs) == judge(mixed)


@given(PAIRS)
def test_the_estimate_lies_in_its_interval_and_worse_or_better_exclude_one(pairs):
    found = judge(pairs)
    low, high = found.interval
    assert low <= found.ratio * (1 + 1e-9)
    assert found.ratio <= high * (1 + 1e-9)
    if found.outcome is Outcome.WORSE:
        assert low > 1
        assert found.ratio > 1.1
    if found.outcome is Outcome.BETTER:
        assert high < 1


@given(st.lists(SAMPLES, min_size=8, max_size=24), st.floats(min_value=1.11, max_value=10))
def test_a_factor_on_every_sample_is_found_and_measured_exactly(samples, factor):
    found = judge([(sample, sample * factor) for sample in samples])
    assert found.outcome is Outcome.WORSE
    assert found.ratio == pytest.approx(factor)


@given(PAIRS, st.floats(min_value=1, max_value=10))
def test_making_the_candidate_worse_never_makes_the_answer_better(pairs, factor):
    order = [Outcome.BETTER, Outcome.NOT_WORSE, Outcome.UNDECIDED, Outcome.WORSE]
    before, after = judge(pairs), judge([(old, factor * new) for old, new in pairs])
    assert order.index(after.outcome) >= order.index(before.outcome)


@given(st.integers(min_value=1, max_value=200), st.sampled_from([0.9, 0.95, 0.99, 0.999]))
def test_the_interval_is_the_narrowest_that_covers_what_it_promises(count, confidence):
    """Each number lies below the true median as often as above: the chance to miss it is two binomial tails."""

    def missed(strays: int) -> float:
        return 2 * sum(math.comb(count, below) for below in range(strays + 1)) / 2**count

    strays = strays_allowed(count, confidence)
    assert strays is None or missed(strays) <= 1 - confidence + 1e-12
    assert missed(-1 if strays is None else strays) < missed(0 if strays is None else strays + 1)
    assert missed(0 if strays is None else strays + 1) > 1 - confidence


@pytest.mark.parametrize(("confidence", "pairs"), [(0.5, 2), (0.9, 5), (0.95, 6), (0.99, 8), (0.999, 11)])
def test_the_fewest_pairs_of_a_confidence(confidence, pairs):
    assert pairs_for(confidence) == pairs
    assert middle_of([1.0] * (pairs - 1), confidence) is None


@pytest.mark.parametrize(("pairs", "strays"), [(8, 0), (11, 0), (12, 1), (15, 2), (20, 3)])
def test_the_strays_that_the_docs_promise(pairs, strays):
    assert strays_allowed(pairs, 0.99) == strays


@pytest.mark.parametrize(
    ("baseline", "candidate", "limit", "said"),
    [
        ([1.0], [1.0, 2.0], Limit(), "no pairs"),
        ([1.0], [math.nan], Limit(), "a number from 0 on"),
        ([1.0], [-1.0], Limit(), "a number from 0 on"),
        ([1.0], [1.0], Limit(ratio=None), "needs a ratio"),
    ],
)
def test_what_cannot_be_compared_is_said(baseline, candidate, limit, said):
    with pytest.raises(ValueError, match=said):
        compare(baseline, candidate, limit=limit, rule=Rule())


def test_the_rule_is_said_in_one_sentence():
    assert Rule().sentence(Limit(ratio=0.1, absolute=0.5), "s") == (
        "worse: the median of at least 8 alternating pairs is more than 10 % and 0.5 s higher, and its exact 99 % "
        "interval excludes no difference (99.9 % where the median is less than 3 times the pairs' deviation)"
    )


@pytest.mark.parametrize("noise", [0.2, 1.0, 3.0])
def test_noise_of_any_size_is_rarely_called_a_difference(noise):
    """In a thousand lines of equal stacks: 99 % alone would call eight of them different."""
    found = [compare(*machine(line, 8, noise=noise), limit=Limit(), rule=Rule()).outcome for line in range(1000)]
    assert found.count(Outcome.WORSE) <= 2
    assert found.count(Outcome.BETTER) <= 2


def test_pairs_that_all_point_one_way_without_agreeing_need_more_of_them():
    apart = [(1.0, 1.01 * 1.5**step) for step in range(8)]
    assert judge(apart).outcome is Outcome.UNDECIDED
    assert judge(apart * 2).outcome is Outcome.WORSE
    assert judge([(1.0, 1.5)] * 8).outcome is Outcome.WORSE
