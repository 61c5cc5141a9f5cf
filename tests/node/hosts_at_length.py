"""What takes too long for every day: the other faults between hosts, and Ctrl-C and SIGKILL. `make hosts` runs it.

Processes are counted on the machine, by what they carry in their environment, and not by hangdrill's own word.
"""

import os
import signal
import sys

import pytest
from host_drills import DRILL_S, Drill, link_is_up, nothing_left
from two_hosts import CHECKOUT

from hangdrill.drill.waiting import Waiter

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(1800)]

REACH_S = 180.0
GONE_S = 120.0
HANGING_SERVER = """
import sys, threading
from pathlib import Path
import hangdrill.node.shared as shared
from hangdrill.node.__main__ import main
def hanging(call):
    def wrapped(*words):
        if Path("/var/tmp/hang").exists():
            threading.Event().wait()
        return call(*words)
    return wrapped
for name in ("read_in_place", "write_in_place", "_replace"):
    setattr(shared, name, hanging(getattr(shared, name)))
sys.exit(main(sys.argv[1:]))
"""
"""A node process whose file server hangs for good as soon as a file says so."""
FAULTS = ["hosts/link-down-alone", "hosts/link-loss", "hosts/link-slow", "hosts/host-death", "hosts/store-host-death"]


def wait_for(drill, event):
    reached = Waiter().until(
        lambda: event in drill.events() or drill.a.process.poll() is not None or None, deadline_s=REACH_S, poll_s=0.05
    )
    assert event in drill.events(), f"{reached}: {drill.a.output}{drill.b.output}"


def assert_all_gone(hosts):
    Waiter().until(lambda: not nothing_left(hosts) or None, deadline_s=GONE_S, poll_s=0.5)
    assert nothing_left(hosts) == {}
    assert link_is_up(hosts.b)


@pytest.mark.parametrize("scenario", FAULTS)
def test_fault_between_hosts_passes_and_is_taken_back(hosts, scenario):
    drill = Drill(hosts, scenario)
    assert drill.end()[0] == 0, drill.a.output + drill.b.output
    assert drill.not_passed() == {}
    assert link_is_up(hosts.a)
    assert_all_gone(hosts)


def test_dump_on_a_hosts_own_disk_goes_with_the_host_and_the_check_says_so(hosts):
    scenario = hosts.shared / "own.toml"
    scenario.write_text(
        f"""
        title = "Native dumps on each host's own disk"
        job = {{ nnodes = 2, nproc_per_node = 2, script = "{CHECKOUT}/scenarios/containers/dumping.py", timeout_s = 6 }}
        fault = {{ kind = "hold", rank = 3, before = {{ op = "all_reduce", nth = 5 }} }}
        recorder = {{ trigger = "native", dump_to = "{hosts.b.own}/dumps" }}
        expect = {{ dumps = "all", culprit = 3, survives = ["host-loss"], within_s = 60 }}
        """
    )
    drill = Drill(hosts, str(scenario))
    assert drill.end()[0] == 1, drill.a.output
    assert set(drill.not_passed()) == {"survives-host-loss"}
    problem = drill.check("survives-host-loss")
    assert problem["ranks"] == {"0": "pass", "1": "pass", "2": "fail", "3": "fail"}
    assert "is in the own file system of host-b" in problem["detail"]
    assert_all_gone(hosts)


@pytest.mark.parametrize("phase", ["nodes-ready", "fault-confirmed", "collected"])
def test_ctrl_c_on_the_controller_leaves_nothing_on_either_host(hosts, phase):
    drill = Drill(hosts, "hosts/link-down")
    wait_for(drill, phase)
    drill.a.signal(signal.SIGINT)
    code, _ = drill.end()
    assert code in (130, 0), drill.a.output
    assert_all_gone(hosts)


def test_ctrl_c_on_the_other_host_leaves_nothing_there(hosts):
    drill = Drill(hosts, "hosts/hold")
    wait_for(drill, "fault-confirmed")
    drill.b.signal(signal.SIGINT)
    assert drill.b.wait(DRILL_S) == 130
    drill.a.wait(DRILL_S)
    assert_all_gone(hosts)


def test_restart_keeps_the_evidence_of_the_attempt_before_on_both_hosts(hosts):
    scenario = hosts.shared / "restart.toml"
    scenario.write_text(
        """
        title = "A job on two hosts is restarted"
        job = { nnodes = 2, nproc_per_node = 2, workload = "all-reduce", timeout_s = 5, max_restarts = 1 }
        fault = { kind = "hold", rank = 3, at = "step:3" }
        expect = { dumps = "all", culprit = 3, survives = ["restart"], within_s = 60 }
        """
    )
    drill = Drill(hosts, str(scenario))
    assert drill.end() == (0, 0), drill.a.output + drill.b.output
    assert drill.not_passed() == {}
    assert drill.check("restart-kept")["verdict"] == "pass"
    assert_all_gone(hosts)


def test_killed_controller_is_found_silent_and_both_hosts_end_their_part(hosts):
    drill = Drill(hosts, "hosts/link-down")
    wait_for(drill, "fault-confirmed")
    drill.a.signal(signal.SIGKILL)
    drill.a.wait(DRILL_S)
    assert drill.b.wait(DRILL_S) == 75
    assert "the controller has not been heard of" in drill.b.output
    assert_all_gone(hosts)


def test_killed_node_process_leaves_its_host_to_the_guard(hosts):
    drill = Drill(hosts, "hosts/link-down")
    wait_for(drill, "fault-confirmed")
    drill.b.signal(signal.SIGKILL)
    drill.b.wait(DRILL_S)
    drill.a.wait(DRILL_S)
    assert_all_gone(hosts)


def test_killed_node_process_beside_the_controller_leaves_its_host_to_the_guard(hosts):
    drill = Drill(hosts, "hosts/hold")
    wait_for(drill, "fault-confirmed")
    (node,) = [line.split()[0] for line in hosts.a.processes() if "hangdrill.node --run" in line]
    os.kill(int(node), signal.SIGKILL)
    drill.end()
    assert "host-a has not been heard of" in drill.a.output
    assert_all_gone(hosts)


def test_clean_on_its_host_finds_the_orphans_of_a_killed_node_process_and_guard(hosts):
    drill = Drill(hosts, "hosts/hold")
    wait_for(drill, "fault-confirmed")
    (guard,) = hosts.b.guards()
    hosts.b.run("kill", "-KILL", *hosts.b.inner_pids([guard, drill.b.pid]))
    assert hosts.b.processes() != []
    cleaned = hosts.b.hangdrill("clean")
    assert cleaned.wait(DRILL_S) == 0, cleaned.output
    assert hosts.b.processes() == []
    drill.a.wait(DRILL_S)


def test_host_that_loses_its_power_is_said_to_be_lost(hosts):
    drill = Drill(hosts, "hosts/hold")
    wait_for(drill, "fault-confirmed")
    hosts.b.power_off()
    assert drill.a.wait(DRILL_S) in (1, 2), drill.a.output
    assert "host-b has not been heard of" in drill.a.output
    assert drill.check("nothing-left")["verdict"] == "unknown"


def test_file_server_that_hangs_keeps_no_rank_alive(hosts):
    out = hosts.shared / "out"
    a = hosts.a.hangdrill("run", "hosts/agent-kill", "--out", str(out))
    run_dir = out / "hosts/agent-kill"
    b = hosts.b.start([sys.executable, "-c", HANGING_SERVER, "--run", str(run_dir), "--node", "1"])
    journal = run_dir / "journal.jsonl"
    steady = Waiter().until(
        lambda: (journal.exists() and "steady" in journal.read_text()) or a.process.poll() is not None or None,
        deadline_s=REACH_S,
    )
    assert steady, a.output
    hosts.b.run("touch", "/var/tmp/hang")
    assert b.wait(DRILL_S) == 75, b.output
    assert "the controller has not been heard of" in b.output
    assert hosts.b.processes() == []
    assert a.wait(DRILL_S) in (0, 1, 2)
    assert_all_gone(hosts)
