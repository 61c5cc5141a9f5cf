"""docs/preflight.md lists exactly the findings and the variables of the code."""

import re
from pathlib import Path

from hangdrill.preflight import CATALOGUE
from hangdrill.preflight.variables import VARIABLES

PAGE = (Path(__file__).parents[2] / "docs/preflight.md").read_text(encoding="utf-8")
FINDING = re.compile(r"^\| `([a-z0-9-]+)` \| ([a-z-]+) \| (.+) \|$", re.MULTILINE)
VARIABLE = re.compile(r"^\| `([A-Z0-9_]+)` \| (.*?) ?\| (.+) \| (.+) \|$", re.MULTILINE)


def test_the_table_of_findings_is_that_of_the_code() -> None:
    assert FINDING.findall(PAGE) == [(id_, severity.value, claim) for id_, (severity, claim) in CATALOGUE.items()]


def test_the_table_of_variables_is_that_of_the_code() -> None:
    told = [each for each in VARIABLES if each.does != "nothing about evidence"]
    rows = [(name, old, default) for name, old, default, _ in VARIABLE.findall(PAGE)]
    assert rows == [(each.name, ", ".join(f"`{old}`" for old in each.old), each.default or "-") for each in told]


def test_ids_are_stable_words() -> None:
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", id_) for id_ in CATALOGUE)
