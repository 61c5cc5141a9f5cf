"""A container that runs out of memory: the kernel kills its ranks for real, and only what lies on a volume is left."""

import json
from pathlib import Path

import pytest
from controls_lab import not_passed, result_of, run_hangdrill

from hangdrill.model.run import MemoryFacts

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(1800)]

DRILLS = ("controls/oom-kill", "controls/oom-kill-own-layer")


@pytest.fixture(scope="module")
def drilled(docker_engine, tmp_path_factory) -> Path:
    """Where the results of both drills are."""
    directory = tmp_path_factory.mktemp("oom")
    code, output = run_hangdrill(["run", *DRILLS, "--out", str(directory / "out")], directory, docker_engine)
    assert code == 1, output
    return directory / "out"


def test_dumps_on_a_volume_survive_the_oom_killer(drilled: Path) -> None:
    result = result_of(drilled, "controls/oom-kill")
    assert not_passed(result) == {}
    checks = {check["name"]: check for check in result["checks"]}
    assert "the OOM killer killed" in checks["survives-oom-kill"]["detail"]
    assert "and the container ended with" in checks["survives-oom-kill"]["detail"]


def test_dumps_in_the_own_layer_are_gone_with_that_reason_alone(drilled: Path) -> None:
    result = result_of(drilled, "controls/oom-kill-own-layer")
    assert set(not_passed(result)) == {"survives-oom-kill"}
    detail = not_passed(result)["survives-oom-kill"]["detail"]
    assert "fr_1 is gone after oom-kill: /var/tmp/dumps is in the container's own layer" in detail


@pytest.mark.parametrize("scenario", DRILLS)
def test_kernel_and_engine_are_recorded(drilled: Path, scenario: str) -> None:
    told = json.loads((drilled / scenario / "inspection.json").read_text())["memory"]
    memory = MemoryFacts(**told)
    assert memory.limit_bytes == 1 << 30
    assert (memory.kills or 0) >= memory.kills_of_job >= 1
    assert (memory.oom_killed, memory.container_over) == (True, True)
    assert memory.exit_code in (1, 137)  # torchrun may end by itself once a rank was killed, before it is killed too
