"""Every negative control fails, in the check that it is for and in no other, with its own words; its twin passes.

Real drills in bubblewrap, all of them by one command, three at a time.
"""

import os
import shutil
from pathlib import Path

import pytest
from control_cases import CONTROLS, FAKETIME, MENDED, Control
from controls_lab import CHECKOUT, faketime_library, not_passed, result_of, run_hangdrill

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(1800)]

IN_BWRAP = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed")
PLACES = [pytest.param("bwrap", marks=IN_BWRAP), *(["container"] if os.environ.get("HANGDRILL_ALL_CONTROLS") else [])]
NEED_FAKETIME = {"controls/skewed-clock", *(control.scenario for control in CONTROLS if control.needs == FAKETIME)}


@pytest.fixture(scope="module", params=PLACES)
def drilled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, Path]:
    """The exit code, the output and where the results are, of all controls and their twins."""
    directory = tmp_path_factory.mktemp("controls")
    names = [*MENDED, *(control.scenario for control in CONTROLS)]
    if faketime_library() is None:
        names = [name for name in names if name not in NEED_FAKETIME]
    engine = request.getfixturevalue("docker_engine") if request.param == "container" else {}
    words = ["run", *names, "--launcher", request.param, "-j", "3", "--out", str(directory / "out")]
    code, output = run_hangdrill(words, directory, engine)
    return code, output, directory / "out"


def result(drilled: tuple[int, str, Path], scenario: str) -> dict[str, object]:
    if scenario in NEED_FAKETIME and faketime_library() is None:
        pytest.skip("libfaketime is not installed (faketime)")
    code, output, out = drilled
    assert code == 1, output
    return result_of(out, scenario)


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.scenario)
def test_negative_control_fails_with_its_own_reason_alone(drilled: tuple[int, str, Path], control: Control) -> None:
    found = result(drilled, control.scenario)
    assert found["verdict"] == "fail"
    assert set(not_passed(found, "fail")) == {control.check}
    problem = not_passed(found)[control.check]
    assert [words for words in control.words if words not in problem["detail"]] == [], problem["detail"]
    assert problem["mend"]


@pytest.mark.parametrize("scenario", MENDED)
def test_mended_twin_passes_every_check(drilled: tuple[int, str, Path], scenario: str) -> None:
    found = result(drilled, scenario)
    assert not_passed(found) == {}
    assert found["verdict"] == "pass"


def test_clock_that_is_minutes_behind_is_told(drilled: tuple[int, str, Path]) -> None:
    checks = {check["name"]: check for check in result(drilled, "controls/skewed-clock")["checks"]}
    assert "ranks 0, 1: its clock is 600" in checks["fresh"]["detail"]
    assert "behind the controller's" in checks["fresh"]["detail"]


def test_cut_dump_says_how_many_operations_were_saved(drilled: tuple[int, str, Path]) -> None:
    unreadable = result(drilled, "controls/cut-by-kill")["diagnosis"]["ranks"]["unreadable"]
    assert [(one["rank"], one["salvaged_entries"] > 0) for one in unreadable] == [(1, True)]


def test_every_shipped_control_is_drilled_here() -> None:
    shipped = {f"controls/{path.stem}" for path in (CHECKOUT / "scenarios/controls").glob("*.toml")}
    assert shipped - {"controls/oom-kill", "controls/oom-kill-own-layer"} == {
        *MENDED,
        *(control.scenario for control in CONTROLS),
    }
