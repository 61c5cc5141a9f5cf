"""The plan says beforehand exactly what a drill will do."""

import msgspec
import pytest
from fake_job import HEALTHY, scenario

from hangdrill.drill.lock import resources_of
from hangdrill.drill.plan import launch_request, launcher_for, plan_drill
from hangdrill.drill.plan_values import Plan, is_healthy
from hangdrill.model.scenario import LauncherName

ENVIRON = {"PATH": "/usr/bin", "RANK": "3", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "outer", "PET_NNODES": "7"}


def plan(tmp_path, environ=ENVIRON, **tables):
    given = scenario(**tables)
    return plan_drill(given, name="n", run_dir=tmp_path, python="py", environ=environ, run_id="hd-0123456789ab")


def test_plan_survives_its_file(tmp_path):
    made = plan(tmp_path)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Plan) == made


def test_orders_carry_the_fault_and_where_it_is_placed(tmp_path):
    fault = plan(tmp_path).orders.fault
    assert (fault.kind, fault.ranks, fault.at, fault.op, fault.nth) == ("hold", (1,), "before", "all_reduce", 4)


@pytest.mark.parametrize(
    ("kind", "at", "expected"),
    [
        ("in-destroy", None, ("destroy", None)),
        ("dataloader", None, ("dataloader", None)),
        ("hold", "init", ("init", None)),
        ("hold", "step:3", ("step", 3)),
        ("kill", None, ("before", None)),
    ],
)
def test_fault_is_placed_where_it_says_or_where_its_kind_belongs(tmp_path, kind, at, expected):
    fault = plan(tmp_path, fault={"kind": kind, "at": at, "before": None}).orders.fault
    assert (fault.at, fault.step) == expected
    assert fault.nth is None


def test_slow_waits_a_part_of_the_timeout_unless_it_says_how_long(tmp_path):
    assert plan(tmp_path, fault={"kind": "slow"}, job={"timeout_s": 10.0}).orders.fault.delay_s == 3.0
    assert plan(tmp_path, fault={"kind": "slow", "delay_s": 0.0}).orders.fault.delay_s == 0.0


def test_restarted_attempt_is_healthy(tmp_path):
    assert plan(tmp_path, job={"max_restarts": 1}).orders.fault.attempts == (0,)
    assert plan(tmp_path).orders.fault.attempts == ()


def test_job_sees_nothing_of_an_outer_job(tmp_path):
    environ = launch_request(plan(tmp_path), ENVIRON).environ
    assert {"RANK", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "PET_NNODES"} & environ.keys() == set()
    assert environ["PATH"] == "/usr/bin"


def test_environment_of_the_scenario_wins_over_defaults_and_not_over_what_the_drill_needs(tmp_path):
    env = {
        "OMP_NUM_THREADS": "2",
        "HANGDRILL_RUN_ID": "mine",
        "PYTHONPATH": "/theirs",
        "TORCH_FR_DUMP_TEMP_FILE": "/d/x_",
    }
    made = plan(tmp_path, job={"env": env})
    assert made.environment["OMP_NUM_THREADS"] == "2"
    assert made.environment["HANGDRILL_RUN_ID"] == "hd-0123456789ab"
    assert made.environment["PYTHONPATH"] == f"{tmp_path}/agent:/theirs"
    assert made.dump_prefix == "/d/x_"


def test_native_dumps_go_where_the_scenario_says(tmp_path):
    made = plan(tmp_path, recorder={"dump_to": "/mnt/dumps"})
    assert made.dump_prefix == made.environment["TORCH_FR_DUMP_TEMP_FILE"] == "/mnt/dumps/fr_"
    assert plan(tmp_path).dump_prefix == f"{tmp_path}/native/fr_"


def test_only_the_collectors_road_has_a_collector(tmp_path):
    command = plan(tmp_path).collector_command
    assert command[command.index("--stall-after-s") + 1] == "0.6"
    assert plan(tmp_path, recorder={"trigger": "native"}).collector_command == ()


def test_no_fault_and_slow_are_healthy():
    assert is_healthy(scenario(**HEALTHY))
    assert is_healthy(scenario(fault={"kind": "slow"}))
    assert not is_healthy(scenario())


@pytest.mark.parametrize("name", LauncherName, ids=lambda name: name.value)
def test_every_launcher_of_the_scenario_is_there(name):
    assert callable(launcher_for(scenario(job={"launcher": name.value})).start)


def test_gloo_drills_need_nothing_for_themselves():
    assert resources_of(scenario()) == ()


def test_gpu_and_debug_server_drills_share_what_they_use():
    assert resources_of(scenario(job={"backend": "nccl"})) == ()
    assert resources_of(scenario(recorder={"trigger": "debug-server"})) == ()


def test_fixed_ports_are_kept_apart():
    assert resources_of(scenario(job={"env": {"MASTER_PORT": "29500"}})) == ("port-29500",)


def test_a_drill_of_the_stores_death_lets_rank_0_host_it(tmp_path):
    dying = plan(tmp_path, fault={"kind": "store-death", "rank": 0})
    assert dying.environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in plan(tmp_path).environment
