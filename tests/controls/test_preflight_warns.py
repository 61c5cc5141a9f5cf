"""What preflight says of a negative control before it is run, and does not say of its mended twin."""

import sys
from pathlib import Path

import pytest
from control_cases import CONTROLS, Control

from hangdrill.drill.scenario_file import load
from hangdrill.preflight import examine, gather
from hangdrill.preflight.surroundings import Machine

TOLD = [control for control in CONTROLS if control.finding]
CONTAINERS = {"containers/own-layer": "dump-on-container-layer", "containers/read-only": "dump-directory-unwritable"}


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The ids of preflight's findings about a shipped scenario."""
    gathering = sys.modules[gather.__module__]  # the package names its function like the module
    monkeypatch.setattr(gathering, "ask_torch", lambda *_, **__: (None, "not asked"))
    monkeypatch.setattr(gathering, "look_at_machine", lambda _: Machine())

    def of(scenario: str) -> set[str]:
        facts = gather(
            python="python3",
            environ={},
            cwd=tmp_path,
            umask=0o077,
            scenario=load(scenario).scenario,
        )
        return {finding.id for finding in examine(facts).findings}

    return of


@pytest.mark.parametrize("control", TOLD, ids=lambda control: control.scenario)
def test_preflight_warns_of_the_control_and_not_of_its_twin(findings, control: Control, tmp_path: Path) -> None:
    assert control.finding in findings(control.scenario)
    if control.finding == "dump-on-tmpfs" and "dump-on-tmpfs" in findings("quick/ddp-hold"):
        pytest.skip("run directories of this test lie on a tmpfs themselves")
    assert control.finding not in findings(control.twin)


@pytest.mark.parametrize("scenario", CONTAINERS)
def test_preflight_warns_of_the_containers_own_layer_and_of_a_read_only_volume(findings, scenario: str) -> None:
    assert CONTAINERS[scenario] in findings(scenario)
    assert CONTAINERS[scenario] not in findings("containers/volume")
