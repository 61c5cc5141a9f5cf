"""What torchrun would leave in the temporary directory counts as left behind; a drill's own command leaves nothing."""

from pathlib import Path

import msgspec
import pytest

from hangdrill.drill.inspection import Inspector
from hangdrill.drill.layout import create_run_dir
from hangdrill.drill.plan import launch_request, plan_drill
from hangdrill.drill.plan_values import Plan
from hangdrill.drill.procfs import own_id
from hangdrill.drill.supervise import Supervisor
from hangdrill.model.scenario import Scenario


def plan_of(run_dir: Path, launcher: str) -> Plan:
    table = {"title": "t", "job": {"launcher": launcher, "workload": "all-reduce"}}
    found = plan_drill(
        msgspec.convert(table, Scenario),
        name="t",
        run_dir=run_dir,
        python="python3",
        environ={},
        run_id="hd-0123456789ab",
    )
    return msgspec.structs.replace(found, environment={**found.environment, "TMPDIR": str(run_dir.parent / "tmp")})


def test_torchrun_is_told_to_keep_its_directory_in_the_run_directory(tmp_path: Path) -> None:
    command = plan_of(tmp_path / "run", "torchrun").command
    assert command[command.index("--log-dir") + 1] == str(tmp_path / "run/torchrun")
    assert not {"--redirects", "--tee"} & set(command)


@pytest.mark.parametrize("launcher", ["bwrap", "container"])
def test_in_a_container_it_goes_with_the_own_layer(tmp_path: Path, launcher: str) -> None:
    plan = plan_of(tmp_path / "run", launcher)
    assert launch_request(plan, {}).log_dir == ""
    assert "--log-dir" not in plan.command


@pytest.mark.parametrize(("run_id", "left"), [("hd-0123456789ab", 1), ("hd-ba9876543210", 0)])
def test_directory_of_this_run_in_the_temporary_directory_is_left_behind(
    tmp_path: Path, run_id: str, left: int
) -> None:
    plan = plan_of(tmp_path / "run", "torchrun")
    layout = create_run_dir(tmp_path / "run")
    (tmp_path / f"tmp/torchelastic_abc/{run_id}_xyz").mkdir(parents=True)
    found = Inspector(plan, layout).look_for_leftovers(Supervisor(plan.run_id, own_id()))
    assert len(found) == left
    assert [Path(each.name).name for each in found] == ["torchelastic_abc"][:left]
