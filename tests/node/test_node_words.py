"""What the command line and `show` say of hosts, and which address a host takes. Nothing is started."""

import contextlib
import itertools
import os
import socket

import pytest

from hangdrill.cli import run_command
from hangdrill.drill.layout import RunLayout
from hangdrill.drill.plan import launch_request, missing_launcher, plan_drill
from hangdrill.drill.scenario_file import find_all
from hangdrill.drill.waiting import Interrupt
from hangdrill.launchers.hosts import HostsLauncher, node_command, node_environ
from hangdrill.model.errors import ExitCode, MachineError, UsageError
from hangdrill.node.addresses import free_port, interface_of, own_address
from hangdrill.node.joining import wait_for_plan


def request_of(tmp_path, environ=None, **job):
    named = find_all(["hosts/hold"])[0]
    plan = plan_drill(
        named.scenario, name="x", run_dir=tmp_path / "run", python="python3", environ=environ or {}, run_id="hd-1"
    )
    return launch_request(plan, environ or {})


def test_show_tells_the_fault_of_a_host_and_how_many_hosts(capsys):
    assert run_command(["show", "hosts/link-down"]) == 0
    shown = capsys.readouterr().out
    assert "4 ranks on 2 hosts" in shown
    assert "link-down of node 1 on eth0, at step:3" in shown
    assert "-m hangdrill.node --run" in shown


def test_node_without_the_shared_directory_is_told_what_to_name(capsys):
    assert run_command(["run", "hosts/hold", "--node-rank", "1"]) == ExitCode.USAGE
    assert "--node-rank needs --out" in capsys.readouterr().err


def test_node_that_the_scenario_does_not_have_is_refused(capsys, tmp_path):
    assert run_command(["run", "hosts/hold", "--node-rank", "2", "--out", str(tmp_path)]) == ExitCode.USAGE
    assert "has 2 nodes, counted from 0" in capsys.readouterr().err


def test_nnodes_of_the_command_line_is_checked_like_the_scenarios(capsys, tmp_path):
    words = ["run", "containers/collector", "--launcher", "bwrap", "--nnodes", "2", "--out", str(tmp_path / "x")]
    assert run_command(words) == ExitCode.USAGE
    assert "bwrap runs on this host" in capsys.readouterr().err


def test_hosts_serve_one_drill_at_a_time(capsys, tmp_path):
    assert run_command(["run", "hosts/hold", "-j", "2", "--out", str(tmp_path / "x")]) == ExitCode.USAGE
    assert "one drill at a time" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("said", ["nowhere", ":29400", "head:x", "head:0", "head:70000"])
def test_endpoint_without_a_port_is_refused_before_anybody_waits(tmp_path, capsys, said):
    words = ["run", "hosts/hold", "--out", str(tmp_path / "x"), "--rdzv-endpoint", said]
    assert run_command(words) == ExitCode.USAGE
    assert "is no HOST:PORT" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_drill_on_several_hosts_is_skipped_where_only_one_is_at_hand():
    why = missing_launcher(find_all(["hosts/hold"])[0].scenario, {})
    assert why == "the job is on 2 hosts: `hangdrill run --node-rank` is started on each"
    assert missing_launcher(find_all(["quick/ddp-hold"])[0].scenario, {}) == ""


def test_controller_starts_node_0_with_what_the_user_said(tmp_path):
    said = {"HANGDRILL_ADDRESS": "10.0.0.1", "HANGDRILL_RDZV_ENDPOINT": "head:29400"}
    command = HostsLauncher().command(request_of(tmp_path, said))
    assert command[1:3] == ("-m", "hangdrill.node")
    assert command[-4:] == ("--address", "10.0.0.1", "--rdzv-endpoint", "head:29400")


def test_variables_of_the_ranks_do_not_reach_the_node_process(tmp_path):
    request = request_of(tmp_path, {"HOME": "/home/me"})
    preload = {"LD_PRELOAD": "/faketime.so"}
    environ = node_environ(request.environ | preload, request.set_environ | preload)
    assert environ["HOME"] == "/home/me"
    assert environ["HANGDRILL_RUN_ID"] == "hd-1"
    assert "LD_PRELOAD" not in environ
    assert "TORCH_FR_DUMP_TEMP_FILE" not in environ


@pytest.mark.parametrize(("node", "rank"), [(0, "0"), (1, "1")])
def test_node_starts_torchrun_under_its_own_number(tmp_path, node, rank):
    words = node_command(request_of(tmp_path), node=node, endpoint="head:1", address="10.0.0.2", log_dir="/own")
    said = dict(itertools.pairwise(words))
    assert (said["--node-rank"], said["--rdzv-backend"], said["--rdzv-endpoint"]) == (rank, "static", "head:1")
    assert (said["--nnodes"], said["--local-addr"], said["--log-dir"]) == ("2", "10.0.0.2", "/own")


def test_loopback_is_only_taken_when_it_is_given():
    assert own_address("127.0.0.1", peer="") == "127.0.0.1"
    found = ""
    with contextlib.suppress(MachineError):  # a machine without a network
        found = own_address("", peer="")
    assert not found.startswith("127.")
    assert interface_of("127.0.0.1") == "lo"


def test_port_is_free_on_the_address():
    port = free_port("127.0.0.1")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))


@pytest.mark.parametrize("address", ["192.0.2.1", "no.such.host.invalid"])
def test_address_that_is_not_this_hosts_is_refused_with_the_option(address):
    with pytest.raises(UsageError) as caught:
        free_port(own_address(address, peer=""))
    assert caught.value.where == "--address"


def test_node_whose_user_may_not_read_the_run_directory_is_told_at_once(tmp_path):
    run = tmp_path / "run"
    (run / "control").mkdir(parents=True)
    run.chmod(0)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        with Interrupt() as interrupt, pytest.raises(MachineError, match="may not read the run directory"):
            wait_for_plan(RunLayout(run), 1, interrupt)
    finally:
        os.seteuid(user)
        run.chmod(0o700)
