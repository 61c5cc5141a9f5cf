"""docs/reference/checks.md lists exactly the checks there are, in their order, each with its claim."""

import re
from pathlib import Path

from hangdrill.checks import ALL

DOC = Path(__file__).parents[2] / "docs" / "reference" / "checks.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| (.+) \|$", re.MULTILINE)


def test_table_of_the_docs_is_the_list_of_the_code():
    table = DOC.read_text(encoding="utf-8").split("## Verdicts")[0]
    assert ROW.findall(table) == [(check.name, check.claim) for check in ALL]


def test_every_limit_belongs_to_a_check():
    limits = DOC.read_text(encoding="utf-8").split("## Tolerances and limits")[1].split("## Decisions")[0]
    assert {name for name, _ in ROW.findall(limits)} <= {check.name for check in ALL}
