"""docs/negative-controls.md names every control with its check, its words, and what preflight says."""

import re

import pytest
from control_cases import CONTROLS, MENDED, Control
from controls_lab import CHECKOUT

PAGE = (CHECKOUT / "docs/negative-controls.md").read_text(encoding="utf-8")
ROWS = {
    match[1]: match[0] for match in re.finditer(r"^\|.*?`((?:controls|containers)/[a-z-]+)`.*$", PAGE, re.MULTILINE)
}


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.scenario)
def test_row_of_a_control_names_its_check_and_its_finding(control: Control) -> None:
    row = ROWS[control.scenario]
    assert f"`{control.check}`" in row
    assert not control.finding or f"`{control.finding}`" in row
    assert any(words in row for words in control.words)


def test_every_shipped_scenario_of_the_group_is_on_the_page() -> None:
    shipped = {f"controls/{path.stem}" for path in (CHECKOUT / "scenarios/controls").glob("*.toml")}
    assert shipped - {name for name in shipped if f"`{name}`" in PAGE} == set()
    assert set(MENDED) <= shipped


def test_page_names_only_scenarios_that_there_are() -> None:
    named = set(re.findall(r"`((?:controls|containers)/[a-z-]+)`", PAGE))
    assert {name for name in named if not (CHECKOUT / "scenarios" / f"{name}.toml").exists()} == set()
