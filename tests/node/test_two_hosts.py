"""Real drills over two hosts with networks, names and pids of their own: held rank, cut link, lost host, orphans.

The other faults, and interrupts, are in hosts_at_length.py (`make hosts`).
"""

import signal

import pytest
from host_drills import DRILL_S, Drill, link_is_up, nothing_left

from hangdrill.drill.waiting import Waiter

pytestmark = [pytest.mark.torchrun, pytest.mark.timeout(900)]

ALL_DUMPS = [f"evidence/node{rank // 2}/rank_{rank}.a0.dump.pickle" for rank in range(4)]


def test_held_rank_on_the_other_host_is_named_and_all_four_dumps_arrive(hosts):
    drill = Drill(hosts, "hosts/hold")
    assert drill.end() == (0, 0), drill.a.output + drill.b.output
    assert drill.not_passed() == {}
    assert drill.dumps() == ALL_DUMPS
    assert [(one["rank"], one["basis"]) for one in drill.result["diagnosis"]["culprits"]] == [(3, "observed")]
    assert nothing_left(hosts) == {}


def test_cut_link_names_nobody_and_is_up_again(hosts):
    drill = Drill(hosts, "hosts/link-down")
    assert drill.end() == (0, 0), drill.a.output + drill.b.output
    assert drill.not_passed() == {}
    assert "eth0 is down" in drill.check("fault-confirmed")["detail"]
    assert (drill.result["diagnosis"]["kind"], drill.result["diagnosis"]["culprits"]) == ("all-joined", [])
    assert drill.dumps() == ALL_DUMPS
    assert link_is_up(hosts.b)
    assert nothing_left(hosts) == {}


def test_dumps_outlive_the_host_that_they_came_from(hosts):
    drill = Drill(hosts, "hosts/host-loss")
    code, of_the_lost = drill.end()
    assert (code, of_the_lost != 0) == (0, True), drill.a.output + drill.b.output
    assert drill.not_passed() == {}
    assert "host-b was taken away" in drill.check("nothing-left")["detail"]
    assert drill.dumps() == ALL_DUMPS
    assert nothing_left(hosts) == {}


def test_orphans_of_a_killed_torchrun_are_found_and_ended(hosts):
    drill = Drill(hosts, "hosts/agent-kill")
    assert drill.end() == (0, 0), drill.a.output + drill.b.output
    assert drill.not_passed() == {}
    assert "and its ranks 2, 3 live on" in drill.a.output
    assert drill.dumps() == ALL_DUMPS
    assert nothing_left(hosts) == {}


def test_host_that_dies_before_its_evidence_is_in_fails_and_says_which_dumps_and_why(hosts, tmp_path):
    scenario = hosts.shared / "early.toml"
    scenario.write_text(
        """
        title = "A host dies, and all dumps were promised"
        job = { nnodes = 2, nproc_per_node = 2, workload = "all-reduce", timeout_s = 5 }
        fault = { kind = "host-death", node = 1, interface = "eth0", at = "step:3" }
        expect = { dumps = "all", within_s = 60 }
        """
    )
    drill = Drill(hosts, str(scenario))
    assert drill.end()[0] == 1, drill.a.output
    problem = drill.check("every-rank-dumped")
    assert problem["ranks"] == {"0": "pass", "1": "pass", "2": "fail", "3": "fail"}
    assert "their host host-b has not been heard of for" in problem["detail"]
    assert drill.dumps() == ALL_DUMPS[:2]
    assert drill.check("culprit")["verdict"] == "pass"
    assert link_is_up(hosts.b)
    assert nothing_left(hosts) == {}


@pytest.mark.parametrize(
    ("interface", "reason"), [("nosuch0", "this host has no interface nosuch0"), ("lo", "lo joins no hosts")]
)
def test_interface_that_cannot_be_cut_ends_the_drill_before_anything_starts(hosts, interface, reason):
    scenario = hosts.shared / "refused.toml"
    scenario.write_text(
        f"""
        title = "A link that is not there"
        job = {{ nnodes = 2, nproc_per_node = 2, workload = "all-reduce", timeout_s = 5 }}
        fault = {{ kind = "link-down", node = 1, interface = "{interface}", at = "step:3" }}
        expect = {{ kind = "all-joined" }}
        """
    )
    drill = Drill(hosts, str(scenario))
    assert drill.end() == (75, 64), drill.a.output + drill.b.output
    assert f"host-b: {reason}" in drill.a.output
    assert reason in drill.b.output
    assert "steady" not in drill.events()
    assert nothing_left(hosts) == {}


def test_ctrl_c_while_the_other_host_is_awaited_leaves_nothing(hosts):
    out = hosts.shared / "out"
    waiting = hosts.a.hangdrill("run", "hosts/hold", "--out", str(out))
    assert Waiter().until(lambda: "waiting for node 1" in waiting.output or None, deadline_s=DRILL_S), waiting.output
    waiting.signal(signal.SIGINT)
    assert waiting.wait(DRILL_S) == 130
    assert nothing_left(hosts) == {}


def test_host_that_comes_to_a_drill_that_is_over_or_twice_is_sent_away(hosts):
    drill = Drill(hosts, "hosts/link-down", "--rdzv-endpoint", "host-a:29417", "--address", "")
    twice = hosts.b.hangdrill("run", "hosts/link-down", "--out", str(drill.out), "--node-rank", "1")
    codes = sorted([drill.b.wait(DRILL_S), twice.wait(DRILL_S)])
    assert codes == [0, 64], drill.b.output + twice.output
    assert "node 1 is served already" in drill.b.output + twice.output
    assert drill.a.wait(DRILL_S) == 0, drill.a.output
    late = hosts.b.hangdrill("run", "hosts/link-down", "--out", str(drill.out), "--node-rank", "1")
    assert late.wait(DRILL_S) == 64
    assert "this drill is over already" in late.output
    assert "meeting at host-a:29417" in drill.b.output + twice.output
