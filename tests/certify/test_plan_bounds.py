"""Nonsense in a plan is refused before anything is measured, with its key and line."""

import os
from pathlib import Path

import pytest

from hangdrill.certify.plan import load_plan, plan_of
from hangdrill.model.errors import UsageError

SIDES = '[baseline]\npython = "/a/bin/python"\n[candidate]\npython = "/b/bin/python"\n'


@pytest.mark.parametrize(
    ("top", "tables", "said"),
    [
        ("", "[workload]\ntimeout_s = nan", "workload.timeout_s: nan is out of bounds"),
        ("", "[workload]\ndeadline_s = inf", "workload.deadline_s: inf is out of bounds"),
        ("", "[workload]\npairs = 9223372036854775807", "workload.pairs"),
        ("valid_days = 4000000", "", "valid_days: 4e+06 is out of bounds"),  # a date after the year 9999
        ("seed = -1", "", "seed: -1 is out of bounds"),
        ("", "[thresholds.init-time]\nratio = inf", "thresholds.init-time.ratio: inf"),  # nothing would ever be worse
        ("", "[thresholds.init-time]\nabsolute = nan", "thresholds.init-time.absolute: nan"),
        ("", "[price]\nper_hour = nan", "price.per_hour: nan"),
        ("", '[workload]\nenv = { A = "x\\u0000" }', "workload.env.A: it has a NUL"),
        ("", '[workload]\nenv = { "A=B" = "x" }', "no name of a variable"),
        ("", '[workload]\nenv = { "" = "x" }', "no name of a variable"),
        ("", '[workload]\nbackend = ""', "workload.backend: it is empty"),
        ("", '[checkpoint]\nknown_good = "/a\\u0000"', "checkpoint.known_good: it has a NUL"),
        ("", '[checkpoint]\nmodes = ["sync", "sync"]', "stands there twice"),  # one would overwrite the other
        ("", "[rollback]\nroads = []", "no way back would be tried"),
        ("", '[ring]\nname = "a"\norder = ["a", "b", "a"]', "stands there twice"),  # which one is before b?
        ("", '[ring]\norder = [""]', "ring.order[0]: it is empty"),
        ('measures = ["init-time", "init-time"]', "", "stands there twice"),
        ("x = " + "[" * 5000 + "]" * 5000, "", "lists in lists"),
    ],
)
def test_nonsense_is_refused(top: str, tables: str, said: str) -> None:
    text = f'title = "up"\n{top}\n{SIDES}{tables}\n'
    with pytest.raises(UsageError) as caught:
        plan_of(text, path=Path("/plans/plan.toml"), environ={})
    assert said in str(caught.value)


@pytest.mark.parametrize("title", ["", "  ", "\\u001b[31mred", "two\\nlines"])
def test_a_title_is_text_that_can_be_printed(title: str) -> None:
    with pytest.raises(UsageError, match="title: it"):
        plan_of(f'title = "{title}"\n{SIDES}', path=Path("/plans/plan.toml"), environ={})


def test_limits_that_make_sense_are_taken() -> None:
    more = "valid_days = 365\nseed = 0\n"
    tables = "[workload]\ntimeout_s = 0.5\n[thresholds.init-time]\nratio = 0.0\n[price]\nper_hour = 0.01\n"
    found = plan_of(f'title = "Größe 2 → 3"\n{more}{SIDES}{tables}', path=Path("/plans/plan.toml"), environ={}).plan
    assert (found.valid_days, found.seed, found.workload.timeout_s) == (365, 0, 0.5)


def test_a_file_without_end_is_not_read_to_it() -> None:
    with pytest.raises(UsageError, match="larger than 1 MB"):
        load_plan(Path("/dev/zero"), os.environ)


def test_a_number_of_thousands_of_digits_is_a_mistake_in_the_plan() -> None:
    text = f'title = "up"\nseed = {"9" * 5000}\n[baseline]\npython = "/a"\n[candidate]\npython = "/b"\n'
    with pytest.raises(UsageError, match="not valid TOML"):
        plan_of(text, path=Path("plan.toml"), environ=os.environ)
