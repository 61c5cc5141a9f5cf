"""The rule on real pairs of gloo jobs (tests/data/canary_pairs), on a machine with five times more work than cores.

Eight pairs of one stack against itself, and eight against the same stack with 200 MB planted, which it takes when it
makes its process group: so its start is slower too.
"""

import json
import random
from pathlib import Path

import pytest

from hangdrill.certify.compare_samples import Outcome, Rule, compare
from hangdrill.certify.measures import limit_of
from hangdrill.model.certify_plan import Measure

DATA = Path(__file__).parents[1] / "data" / "canary_pairs"
SAME, PLANTED = (json.loads((DATA / f"{name}.json").read_text()) for name in ("same", "planted"))
RUNS = range(10)
START = "single-node/init-time"
MEMORY = ("single-node/memory-before-first-step", "single-node/memory-peak")


def judge(row, baseline=None, candidate=None) -> Outcome:
    limit = limit_of(Measure(row["measure"]), {})
    return compare(baseline or row["baseline"], candidate or row["candidate"], limit=limit, rule=Rule()).outcome


@pytest.mark.parametrize("line", SAME)
def test_the_same_stack_twice_is_never_called_worse_or_better_even_on_an_overloaded_machine(line):
    assert judge(SAME[line]) in (Outcome.NOT_WORSE, Outcome.UNDECIDED)


@pytest.mark.parametrize("line", SAME)
def test_nor_is_it_called_worse_in_ten_certifications_drawn_from_its_runs(line):
    """Each run of the stack is as likely to be the baseline's as the candidate's."""
    runs = SAME[line]["baseline"] + SAME[line]["candidate"]
    for seed in RUNS:
        dice = random.Random(seed)
        mixed = dice.sample(runs, len(runs))
        assert judge(SAME[line], mixed[:8], mixed[8:]) is not Outcome.WORSE


@pytest.mark.parametrize("line", MEMORY)
def test_the_same_memory_is_shown_to_be_no_worse(line):
    assert judge(SAME[line]) is Outcome.NOT_WORSE


@pytest.mark.parametrize("line", MEMORY)
def test_two_hundred_megabytes_in_a_real_stack_are_found(line):
    assert judge(PLANTED[line]) is Outcome.WORSE


@pytest.mark.parametrize("line", MEMORY)
def test_and_in_ten_of_ten_certifications_drawn_from_its_runs(line):
    row = PLANTED[line]
    for seed in RUNS:
        dice = random.Random(seed)
        baseline, candidate = (dice.choices(row[side], k=8) for side in ("baseline", "candidate"))
        assert judge(row, baseline, candidate) is Outcome.WORSE


@pytest.mark.parametrize("line", [line for line in PLANTED if line not in (*MEMORY, START)])
def test_nothing_else_of_the_planted_stack_is_called_worse(line):
    assert judge(PLANTED[line]) in (Outcome.NOT_WORSE, Outcome.UNDECIDED)
