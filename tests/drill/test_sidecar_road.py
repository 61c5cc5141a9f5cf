"""The road of a collector that the launcher starts: all that is known of it is in the run directory."""

import pytest
from fake_job import scenario

from hangdrill.drill.layout import create_run_dir, write_json
from hangdrill.drill.plan import launch_request, plan_drill
from hangdrill.drill.roads import SidecarRoad, make_road
from hangdrill.drill.waiting import Waiter
from hangdrill.model.run import Manifest


@pytest.fixture
def layout(tmp_path):
    return create_run_dir(tmp_path / "run")


@pytest.fixture
def road(layout):
    made = SidecarRoad(layout)
    assert made.start({}) == ()
    return made


def plan_of(tmp_path, recorder=None, job=None, **kubernetes):
    made = scenario(job={"launcher": "kubernetes", "kubernetes": kubernetes, **(job or {})}, recorder=recorder or {})
    return plan_drill(made, name="a", run_dir=tmp_path / "run", python="/their/python", environ={}, run_id="hd-1")


def option(plan, name):
    command = plan.collector_command
    return command[command.index(name) + 1] if name in command else None


def test_log_is_there_before_it_is_mounted(road, layout):
    assert layout.collector_log.stat().st_mode & 0o777 == 0o600


def test_notice_and_completion_are_the_manifests(road, layout):
    assert road.noticed() is None
    assert not road.is_complete(job_over=True)
    write_json(layout.manifest, Manifest(run_id="hd-1", noticed_ns=5, notice="it hangs", complete=True))
    assert (road.noticed().by, road.noticed().why) == ("collector", "it hangs")
    assert road.is_complete(job_over=False)


def test_collector_that_is_done_brings_nothing_more(road, layout):
    layout.collector_exit.write_text("0\n")
    assert road.is_complete(job_over=False)
    assert road.finish(Waiter(), 5.0) == ""


def test_bad_end_is_a_remark(road, layout):
    layout.collector_exit.write_text("75\n")
    assert road.finish(Waiter(), 5.0) == "the collector ended with 75: see collector.log"


def test_silence_is_a_remark_and_waited_for_only_while_the_pod_is_there(road):
    assert "did not say" in road.finish(Waiter(), 0.1)
    road.pod_is_gone = lambda: True
    assert road.finish(Waiter(), 3600.0) == ""


def test_only_the_collectors_road_of_a_pod_is_the_sidecars(tmp_path, layout):
    assert isinstance(make_road(plan_of(tmp_path), layout), SidecarRoad)
    assert not isinstance(make_road(plan_of(tmp_path, {"trigger": "native"}), layout), SidecarRoad)


def test_sidecar_follows_no_parent_and_shares_the_ranks_pids(tmp_path):
    plan = plan_of(tmp_path)
    assert plan.collector_command[1:3] == ("-m", "hangdrill.collector.sidecar")
    assert not {"--parent-pid", "--contained"} & set(plan.collector_command)
    assert option(plan, "--exit-file") == str(tmp_path / "run/control/collector.exit")
    assert launch_request(plan, {}).collector == plan.collector_command


def test_sidecar_sees_native_dumps_where_the_ranks_do(tmp_path):
    on_volume = plan_of(tmp_path, {"dump_to": "/mnt/dumps"}, {"volumes": ["dumps:/mnt/dumps"]})
    in_empty_dir = plan_of(tmp_path, {"dump_to": "/scratch"}, empty_dirs=["/scratch"])
    own_layer = plan_of(tmp_path, {"dump_to": "/dumps"})
    found = [option(plan, "--native-prefix") for plan in (on_volume, in_empty_dir, own_layer)]
    assert found == ["/mnt/dumps/fr_", "/scratch/fr_", None]


def test_torch_alone_has_no_sidecar(tmp_path):
    assert launch_request(plan_of(tmp_path, {"trigger": "native"}), {}).collector == ()
